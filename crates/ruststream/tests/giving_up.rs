//! A layer can tell the failure that is tried again from the one by which a message is given up.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::sync::{Arc, Mutex};

use ruststream::handler::{Call, HandlerOutcome, Layer, Outcome, Single};
use ruststream::prelude::*;

/// Writes down of each call whether its message is given up.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Vec<bool>>>);

impl Layer for Watch {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        let outcome = next.call(call).await;
        self.0.lock().unwrap().push(call.gives_up_by(&outcome));
        outcome
    }
}

#[derive(Debug)]
struct Hopeless;

impl std::fmt::Display for Hopeless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hopeless")
    }
}

#[subscriber("hopeless")]
async fn hopeless(_: u64) -> Result<(), Hopeless> {
    Err(Hopeless)
}

#[subscriber("failing")]
async fn failing(_: u64) -> Result<(), String> {
    Err("it fails".to_owned())
}

#[subscriber("asking")]
async fn asking(_: u64) -> HandlerOutcome {
    HandlerOutcome::retry()
}

#[subscriber("fine")]
async fn fine(_: u64) {}

async fn seen(name: &'static str, payload: &'static str) -> Vec<bool> {
    let memory = MemoryBroker::new();
    let watch = Watch::default();
    let running = RustStream::new(AppInfo::new("shop", "1"))
        .with_broker(memory.clone(), |broker| {
            broker.layer(watch.clone(), |broker| {
                let retry = Retry::fixed(Duration::from_millis(1)).attempts(3);
                broker
                    .include(hopeless)
                    .retry(retry.clone())
                    .retry_on::<Hopeless>(Retry::never());
                broker.include(failing).retry(retry.clone());
                broker.include(asking).retry(retry.clone());
                broker.include(fine).retry(retry);
            });
        })
        .start()
        .await
        .unwrap();
    running.publisher().publish_bytes(name, payload).await.unwrap();
    memory.idle(name).await;
    running.shutdown().await.unwrap();
    let seen = watch.0.lock().unwrap();
    seen.clone()
}

#[tokio::test(start_paused = true)]
async fn the_last_failure_is_told_from_those_before() {
    assert_eq!(seen("fine", "1").await, [false]);
    assert_eq!(seen("failing", "1").await, [false, false, true]);
    assert_eq!(seen("asking", "1").await, [false, false, true]);
    assert_eq!(seen("hopeless", "1").await, [true]);
    assert_eq!(seen("fine", "no number").await, [true]);
}

//! Services that an app runs beside its subscriptions.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ruststream::app::{Background, BackgroundContext, BackgroundState, HookResult};
use ruststream::prelude::*;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};

/// Publishes one message when it is told to stop, and says so.
struct Last(mpsc::Sender<&'static str>);

impl Background for Last {
    fn name(&self) -> String {
        "last".to_owned()
    }

    async fn run(&self, context: &BackgroundContext) -> HookResult {
        context.stopping().await;
        context.app().publisher().publish("late", "one").await?;
        self.0.send("service").await?;
        Ok(())
    }
}

#[subscriber("slow")]
async fn slow(_message: u64, State(told): State<mpsc::Sender<&'static str>>) {
    told.send("begun").await.unwrap();
    sleep(Duration::from_secs(5)).await;
    told.send("handler").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_stops_when_the_last_handler_has_ended() {
    let (told, mut tells) = mpsc::channel(8);
    let memory = MemoryBroker::new();
    let app = RustStream::new(AppInfo::new("shop", "1"))
        .state(told.clone())
        .with_broker(memory.clone(), |broker| {
            broker.include(slow);
        })
        .background(Last(told));
    let running = app.start().await.unwrap();
    running.publisher().publish("slow", &1_u64).await.unwrap();
    assert_eq!(tells.recv().await, Some("begun"));
    assert_eq!(running.health().background[0].state, BackgroundState::Running);
    let handle = running.handle();
    running.shutdown().await.unwrap();
    assert_eq!(tells.recv().await, Some("handler"));
    assert_eq!(tells.recv().await, Some("service"));
    assert_eq!(handle.health().background[0].state, BackgroundState::Ended);
}

/// Fails, panics, and then works.
struct Shaky {
    runs: AtomicU32,
    works: Arc<Notify>,
}

impl Background for Shaky {
    fn name(&self) -> String {
        "shaky".to_owned()
    }

    async fn run(&self, context: &BackgroundContext) -> HookResult {
        match self.runs.fetch_add(1, Ordering::Relaxed) {
            0 => return Err("postgres://me:secret@db is away".into()),
            1 => panic!("it broke"),
            _ => {}
        }
        context.working();
        self.works.notify_one();
        context.stopping().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_or_panics_is_run_again_and_the_health_shows_it() {
    let works = Arc::new(Notify::new());
    let app = RustStream::new(AppInfo::new("shop", "1"))
        .with_broker(MemoryBroker::new(), |_| {})
        .background(Shaky {
            runs: AtomicU32::new(0),
            works: works.clone(),
        });
    let running = app.start().await.unwrap();
    let failing = async {
        loop {
            let health = running.health();
            if health.background[0].state == BackgroundState::Failing {
                return health;
            }
            tokio::task::yield_now().await;
        }
    };
    let health = timeout(Duration::from_secs(5), failing).await.unwrap();
    assert!(!health.is_ready());
    let reason = health.background[0].reason.clone().unwrap();
    assert!(reason.contains("is away") && !reason.contains("secret"), "{reason}");

    timeout(Duration::from_mins(1), works.notified()).await.unwrap();
    assert!(running.health().is_ready());
    running.shutdown().await.unwrap();
}

/// Never hears.
struct Deaf;

impl Background for Deaf {
    fn name(&self) -> String {
        "deaf".to_owned()
    }

    async fn run(&self, _: &BackgroundContext) -> HookResult {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_end_is_dropped_at_the_end_of_the_grace_period() {
    let app = RustStream::new(AppInfo::new("shop", "1"))
        .with_broker(MemoryBroker::new(), |_| {})
        .shutdown_grace(Duration::from_secs(7))
        .background(Deaf);
    let running = app.start().await.unwrap();
    let begun = Instant::now();
    running.shutdown().await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 7);
}

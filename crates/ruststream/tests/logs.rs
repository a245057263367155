//! What the log says of a message that failed.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};

use common::{handler, publish_with, start, within};
use ruststream::message::{HeaderMap, header};
use ruststream::prelude::*;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_with_its_message_and_without_the_payload() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _log = tracing::subscriber::set_default(log);
    let broker = MemoryBroker::new();
    let mut headers = HeaderMap::new();
    headers.insert(header::MESSAGE_ID, "m-7");
    publish_with(&broker, "orders", b"a secret", &headers).await;

    let running = start(broker.clone(), |scope| {
        let fails = handler("orders", |_| async { Err::<(), _>("no stock") });
        scope
            .include(fails)
            .retry(Retry::fixed(Duration::from_secs(1)).attempts(2));
    })
    .await;
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for (attempt, said) in [
        (1, "a message failed and will be tried again"),
        (2, "a message becomes a dead letter"),
    ] {
        let line = text.lines().find(|line| line.contains(said)).unwrap();
        let attempt = format!("attempt={attempt}");
        for part in [
            "subscription=orders",
            "handler=\"closure\"",
            "id=\"m-7\"",
            &attempt,
            "no stock",
        ] {
            assert!(line.contains(part), "{part} is missing in {line}");
        }
    }
    assert!(!text.contains("a secret"), "{text}");
}

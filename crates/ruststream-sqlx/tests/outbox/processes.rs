//! Relays in processes of their own, which are killed in the middle.
//!
//! A process is this test binary, started anew to run the one ignored test below. The broker that they publish to is a file of
//! `SQLite`, which outlives them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ruststream::message::header;
use ruststream::prelude::*;
use ruststream::transport::{Broker, Delivery, Fetch, Source};
use ruststream_sqlx::{Inbox, Outbox, SqlxBroker};
use tokio::process::{Child, Command};

use crate::kit::{drained, outbox, quick, texts, write};
use crate::place::Place;

const PLACE: &str = "RUSTSTREAM_OUTBOX_TEST_PLACE";
const QUEUE: &str = "RUSTSTREAM_OUTBOX_TEST_QUEUE";

/// How long a killed relay keeps what it held.
const LEASE: Duration = Duration::from_secs(1);

fn start(place: &Place, queue: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "processes::child",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(PLACE, place.url())
        .env(QUEUE, queue)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// What a started process does.
#[tokio::test]
#[ignore = "the other test starts it as a process of its own"]
async fn child() {
    let (Ok(place), Ok(queue)) = (std::env::var(PLACE), std::env::var(QUEUE)) else {
        return;
    };
    let outbox = Outbox::new(Place::at(&place).pool().await);
    RustStream::new(AppInfo::new("relay", "1.0.0"))
        .with_broker(SqlxBroker::sqlite(queue), |_| {})
        .background(quick(&outbox).lease(LEASE).batch(20).attempts(1_000))
        .start()
        .await
        .unwrap()
        .finished()
        .await
        .unwrap();
}

/// C33: three relays of which one is killed again and again. Nothing is lost, keys keep their order, and what comes twice bears the
/// same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_are_killed_lose_nothing_and_keep_the_order() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let directory = tempfile::tempdir().unwrap();
    let queue = directory.path().join("queue.db");
    let target = SqlxBroker::sqlite(&queue).connect().await.unwrap();
    let _others = [start(&place, &queue), start(&place, &queue)];
    let mut victim = start(&place, &queue);
    for round in 0..8_u64 {
        for key in ["a", "b", "c"] {
            write(&outbox, &place, key, round * 25 + 1..=round * 25 + 25).await;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(50..250))).await;
        if round % 2 == 1 {
            victim.kill().await.unwrap();
            victim = start(&place, &queue);
        }
    }
    drained(&outbox, 0).await;

    let (mut fetch, _settle) = Inbox::queue("orders").open(&target).await.unwrap();
    let mut firsts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut ids: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut stored = target.queue_counts("orders").await.unwrap().ready;
    while stored > 0 {
        let mut deliveries = Vec::new();
        fetch.fetch(1000, &mut deliveries).await.unwrap();
        stored -= deliveries.len() as u64;
        for delivery in &deliveries {
            let key = String::from_utf8(delivery.key().unwrap().to_vec()).unwrap();
            let payload = String::from_utf8(delivery.payload().to_vec()).unwrap();
            let id = delivery.headers().get_str(header::MESSAGE_ID).unwrap().to_owned();
            match ids.insert((key.clone(), payload.clone()), id.clone()) {
                Some(before) => assert_eq!(before, id),
                None => firsts.entry(key).or_default().push(payload),
            }
        }
    }
    for key in ["a", "b", "c"] {
        assert_eq!(firsts[key], texts(1..=200), "{key}");
    }
}

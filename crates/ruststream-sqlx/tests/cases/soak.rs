//! Services under load through one fault after another: killed, stopped, cut off, their server killed.
//!
//! Runs for 16 seconds; `RUSTSTREAM_SOAK_SECONDS=600` makes it the long form.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Connection, Publish};
use servers::{Instance, Proxy, Settings};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::kit::{Job, Node, Place, Queue, SECOND, Work, of};
use crate::place::{KIND, Place as Database, PlaceBroker};

/// What one node has in hand at most.
const IN_HAND: usize = 32;

/// The most connections that one process has.
const LINKS: usize = 8;

/// Publishes until it is told to stop, over all errors that pass; answers what was confirmed.
async fn send(broker: PlaceBroker, stop: watch::Receiver<bool>) -> Vec<u64> {
    let connection = broker.connect().await.unwrap();
    let publisher = connection.publisher();
    let mut confirmed = Vec::new();
    for id in 0.. {
        if *stop.borrow() {
            break;
        }
        let payload = serde_json::to_vec(&Job::new(id, Work::Wait(3))).unwrap();
        match publisher.publish(&[Outgoing::new("jobs", &payload)]).await {
            Ok(()) => confirmed.push(id),
            Err(error) => assert!(error.first().is_transient(), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    connection.close().await;
    confirmed
}

/// What a process keeps in memory, in bytes.
fn memory(node: &Node) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{}/statm", node.process)).unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_one_after_another_lose_nothing_and_double_only_what_was_in_hand() {
    let seconds = std::env::var("RUSTSTREAM_SOAK_SECONDS").map_or(16, |seconds| seconds.parse().unwrap());
    let every = if seconds > 60 { 10 } else { 2 };
    let mut server = Instance::start(KIND, Settings { durable: true }).unwrap();
    let proxy = Proxy::to(server.port()).unwrap();
    let place = Place::on(Database::on(&server.url()).await.through(proxy.port()));
    let queue = Queue::new("jobs")
        .workers(8)
        .prefetch(IN_HAND)
        .lease(3 * SECOND)
        .retry(50, Duration::from_millis(10));
    let (a, b) = (place.service("a").reads(queue.clone()), place.service("b").reads(queue));
    let mut first = place.start(&a).await;
    let second = place.start(&b).await;
    let (stop, stopped) = watch::channel(false);
    let sending = tokio::spawn(send(place.file.broker(), stopped));

    let began = Instant::now();
    let mut faults = 0;
    let mut early = None;
    while began.elapsed() < Duration::from_secs(seconds) {
        tokio::time::sleep(Duration::from_secs(every)).await;
        match faults % 4 {
            0 => {
                first.kill().await;
                first = place.spawn(&a, &[]);
            }
            1 => {
                second.signal("STOP");
                tokio::time::sleep(SECOND).await;
                second.signal("CONT");
            }
            2 => proxy.cut(),
            _ => tokio::task::block_in_place(|| {
                server.kill();
                server.start_again().unwrap();
            }),
        }
        faults += 1;
        if faults == 4 {
            early = Some(memory(&second));
        }
    }
    stop.send(true).unwrap();
    let confirmed = sending.await.unwrap();
    let all_handled = |lines: &[crate::kit::Line]| {
        let handled: BTreeSet<u64> = of(lines, "end").map(|line| line.id).collect();
        confirmed.iter().all(|id| handled.contains(id))
    };
    let lines = place
        .side
        .until("the end of every confirmed message", all_handled)
        .await;
    assert_eq!(place.drained("jobs").await, 0);

    let mut runs: BTreeMap<u64, usize> = BTreeMap::new();
    for line in of(&lines, "end") {
        *runs.entry(line.id).or_default() += 1;
    }
    let doubled = runs.values().filter(|runs| **runs > 1).count();
    println!(
        "{} confirmed, {faults} faults, {doubled} handled more than once",
        confirmed.len()
    );
    assert!(doubled <= faults * 2 * IN_HAND, "{doubled} were handled more than once");
    let open = proxy.links();
    assert!(open <= 3 * LINKS, "{open} connections are open");
    if let Some(early) = early {
        let late = memory(&second);
        assert!(late < early * 2 + 32 * 1024 * 1024, "{early} bytes early, {late} late");
    }
    first.stop().await;
    second.stop().await;
}

//! Batches are as full as the queue allows, however the subscription begins.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::conformance::unique_name;
use ruststream::message::Outgoing;
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection, Delivery, Fetch, Publish, Settle, Source, Verdict};
use ruststream_lapin::{LapinBroker, Queue};
use servers::Kind;
use tokio::time::{sleep, timeout};

#[derive(Clone, Default)]
struct Sizes(Arc<Mutex<Vec<usize>>>);

#[subscriber("numbers")]
async fn note(numbers: &[u64], State(sizes): State<Sizes>) {
    sizes.0.lock().unwrap().push(numbers.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_a_backlog_are_full() {
    let broker = LapinBroker::new(servers::shared(Kind::Rabbit).unwrap());
    for _ in 0..3 {
        let name = unique_name();
        let queue = Queue::new(&name);
        let connection = broker.clone().declare(queue.clone()).connect().await.unwrap();
        let bodies: Vec<_> = (0..1024u64).map(|number| number.to_string()).collect();
        let all: Vec<_> = bodies
            .iter()
            .map(|body| Outgoing::new(&name, body.as_bytes()))
            .collect();
        connection.publisher().publish(&all).await.unwrap();
        connection.close().await;

        let sizes = Sizes::default();
        let running = RustStream::new(AppInfo::new("batches", "1"))
            .state(sizes.clone())
            .with_broker(broker.clone(), |broker| {
                broker
                    .include(note)
                    .source(queue)
                    .batch(64)
                    .batch_age(Duration::from_millis(200));
            })
            .start()
            .await
            .unwrap();
        let handled = || sizes.0.lock().unwrap().iter().sum::<usize>();
        let all = async {
            while handled() < bodies.len() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = timeout(Duration::from_secs(10), all).await.is_ok();
        let sizes = sizes.0.lock().unwrap().clone();
        assert!(in_time, "batches of {sizes:?}; {:?}", running.health());
        assert!(sizes.len() <= 24, "1024 messages came as batches of {sizes:?}");
        running.shutdown().await.unwrap();
    }
}

/// One more consumer may have been served before this side knows that it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_grows_hands_on_every_delivery_in_order() {
    let name = unique_name();
    let queue = Queue::new(&name);
    let broker = LapinBroker::new(servers::shared(Kind::Rabbit).unwrap()).declare(queue.clone());
    let connection = broker.connect().await.unwrap();
    let bodies: Vec<_> = (0..60u8).map(|number| vec![number]).collect();
    let all: Vec<_> = bodies.iter().map(|body| Outgoing::new(&name, body)).collect();
    for round in 0..50 {
        connection.publisher().publish(&all).await.unwrap();
        let (mut fetch, mut settle) = queue.open(&connection).await.unwrap();
        let mut came = Vec::new();
        let reading = async {
            while came.len() < bodies.len() {
                let mut taken = Vec::new();
                fetch.fetch(16, &mut taken).await.unwrap();
                came.extend(taken.iter().map(|delivery| delivery.payload().to_vec()));
                let mut finished = taken
                    .into_iter()
                    .map(|one| (one.into_receipt(), Verdict::Ack))
                    .collect();
                settle.settle(&mut finished).await.unwrap();
            }
        };
        let in_time = timeout(Duration::from_secs(10), reading).await.is_ok();
        assert!(in_time, "round {round}: {} of {} came", came.len(), bodies.len());
        assert_eq!(came, bodies, "round {round}");
        fetch.close().await.unwrap();
        settle.close().await.unwrap();
    }
    connection.close().await;
}

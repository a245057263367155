//! Order, and batches of which a part fails.

use std::sync::{Arc, Mutex};

use ruststream::app::Running;
use ruststream::message::Outgoing;
use ruststream::prelude::*;
use ruststream::transport::{Connection, Publish};
use ruststream_sqlx::SqlxConnection;

use crate::kit::publish;
use crate::place::Place as File;
use crate::support::eventually;

/// What was handled, in order: one inner list a call.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<Vec<Vec<u64>>>>);

impl Seen {
    fn add(&self, call: Vec<u64>) {
        self.0.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<Vec<u64>> {
        self.0.lock().unwrap().clone()
    }

    fn ids(&self) -> Vec<u64> {
        self.calls().concat()
    }
}

async fn emptied(connection: &SqlxConnection, running: &Running) -> u64 {
    let counts = eventually(
        async || connection.queue_counts("numbers").await.unwrap(),
        |counts| counts.ready + counts.leased + counts.scheduled == 0,
    )
    .await;
    eventually(
        async || running.health().subscriptions.remove(0),
        |health| health.in_hand == 0,
    )
    .await;
    counts.dead
}

#[subscriber("numbers")]
async fn one(id: u64, context: Context<'_>, State(seen): State<Seen>) -> Result<(), &'static str> {
    seen.add(vec![id]);
    if id == 3 && context.attempt() == 1 {
        Err("3 fails once")
    } else {
        Ok(())
    }
}

/// C46: with one worker the order is the queue's own, however much is fetched ahead; a retry stands where its time puts it,
/// behind all that was due before.
#[tokio::test]
async fn one_worker_keeps_the_queues_order_whatever_is_fetched_ahead() {
    let file = File::new().await;
    let connection = file.connect().await;
    publish(&connection, "numbers", &(1..=1000).collect::<Vec<u64>>()).await;
    let seen = Seen::default();

    let running = RustStream::new(AppInfo::new("case", "1.0.0"))
        .state(seen.clone())
        .with_broker(file.broker(), |broker| {
            broker
                .include(one)
                .prefetch(50)
                .retry(Retry::fixed(Duration::ZERO).attempts(2));
        })
        .start()
        .await
        .unwrap();
    assert_eq!(emptied(&connection, &running).await, 0);

    let expected: Vec<u64> = (1..=1000).chain([3]).collect();
    assert_eq!(seen.ids(), expected);
    running.shutdown().await.unwrap();
}

/// C46: with many workers each key keeps its order, through a retry too.
#[tokio::test]
async fn each_key_keeps_its_order_with_eight_workers() {
    const KEYS: u64 = 7;
    let file = File::new().await;
    let connection = file.connect().await;
    let payloads: Vec<(String, String)> = (1..=1000u64)
        .map(|id| (id.to_string(), (id % KEYS).to_string()))
        .collect();
    let messages: Vec<_> = payloads
        .iter()
        .map(|(id, key)| Outgoing::new("numbers", id.as_bytes()).with_key(key.as_bytes()))
        .collect();
    connection.publisher().publish(&messages).await.unwrap();
    let seen = Seen::default();

    let running = RustStream::new(AppInfo::new("case", "1.0.0"))
        .state(seen.clone())
        .with_broker(file.broker(), |broker| {
            broker
                .include(one)
                .workers(8)
                .prefetch(50)
                .ordered_by(OrderBy::key())
                .retry(Retry::fixed(Duration::from_millis(20)).attempts(2));
        })
        .start()
        .await
        .unwrap();
    assert_eq!(emptied(&connection, &running).await, 0);

    for key in 0..KEYS {
        let ids: Vec<u64> = seen.ids().into_iter().filter(|id| id % KEYS == key).collect();
        let expected = (1..=1000).filter(|id| id % KEYS == key);
        let expected: Vec<u64> = expected
            .flat_map(|id| std::iter::repeat_n(id, 1 + usize::from(id == 3)))
            .collect();
        assert_eq!(ids, expected, "key {key}");
    }
    running.shutdown().await.unwrap();
}

#[subscriber("numbers")]
async fn each(ids: &[Envelope<'_, u64>], State(seen): State<Seen>) -> Vec<Result<HandlerOutcome, &'static str>> {
    seen.add(ids.iter().map(|id| id.message).collect());
    ids.iter()
        .map(|id| match (id.message, id.attempt()) {
            (7, 1) => Ok(HandlerOutcome::retry()),
            (9, 1) => Err("9 fails once"),
            _ => Ok(HandlerOutcome::ack()),
        })
        .collect()
}

#[subscriber("numbers")]
async fn all(ids: &[u64], State(seen): State<Seen>) {
    seen.add(ids.to_vec());
    assert!(!ids.contains(&9), "boom");
}

/// C30: of a batch of ten, the eight that are done are acked once, and each of the others is retried alone.
#[tokio::test]
async fn of_a_batch_only_what_failed_is_retried_and_alone() {
    let file = File::new().await;
    let connection = file.connect().await;
    publish(&connection, "numbers", &(1..=10).collect::<Vec<u64>>()).await;
    let seen = Seen::default();

    let running = RustStream::new(AppInfo::new("case", "1.0.0"))
        .state(seen.clone())
        .with_broker(file.broker(), |broker| {
            broker
                .include(each)
                .batch(10)
                .batch_age(Duration::from_secs(10))
                .retry(Retry::fixed(Duration::from_millis(20)));
        })
        .start()
        .await
        .unwrap();
    assert_eq!(emptied(&connection, &running).await, 0);

    let calls = seen.calls();
    assert_eq!(calls[0], (1..=10).collect::<Vec<u64>>());
    let mut again = calls[1..].to_vec();
    again.sort();
    assert_eq!(again, [[7], [9]]);
    let health = running.health().subscriptions.remove(0);
    assert_eq!((health.acked, health.retried, health.stale), (10, 2, 0));
    running.shutdown().await.unwrap();
}

/// C30: a panic says nothing of who is to blame, so each comes again alone; the one that panics again is alone with that.
#[tokio::test]
async fn a_panic_in_a_batch_costs_the_others_one_attempt_at_most() {
    let file = File::new().await;
    let connection = file.connect().await;
    publish(&connection, "numbers", &(1..=10).collect::<Vec<u64>>()).await;
    let seen = Seen::default();

    let running = RustStream::new(AppInfo::new("case", "1.0.0"))
        .state(seen.clone())
        .with_broker(file.broker(), |broker| {
            broker
                .include(all)
                .batch(10)
                .batch_age(Duration::from_secs(10))
                .retry(Retry::fixed(Duration::from_millis(20)).attempts(3));
        })
        .start()
        .await
        .unwrap();
    assert_eq!(emptied(&connection, &running).await, 1);

    let mut calls = seen.calls();
    assert_eq!(calls.remove(0), (1..=10).collect::<Vec<u64>>());
    assert!(calls.iter().all(|call| call.len() == 1), "{calls:?}");
    for id in 1..=10 {
        let times = calls.iter().filter(|call| **call == [id]).count();
        assert_eq!(times, if id == 9 { 2 } else { 1 }, "message {id}");
    }
    let letter = connection.dead_letters().list("numbers", 10).await.unwrap().remove(0);
    assert_eq!((letter.payload.as_slice(), letter.attempts), (&b"9"[..], 3));
    running.shutdown().await.unwrap();
}

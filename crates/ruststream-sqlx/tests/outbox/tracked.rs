//! Tracking as layers: recorded before it is sent, handled once, sent again where it was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ruststream::app::Running;
use ruststream::prelude::*;
use ruststream::transport::ErrorKind;
use ruststream_sqlx::Tracked;
use tokio::sync::Semaphore;

use crate::kit::{PATIENCE, eventually, outbox};
use crate::picky::Picky;
use crate::place::{Database, Place};

#[derive(Clone)]
struct Seen {
    calls: Arc<AtomicU32>,
    running: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    open: Arc<Semaphore>,
    fails: Arc<AtomicU32>,
}

impl Seen {
    fn new(open: usize) -> Self {
        Self {
            calls: Arc::default(),
            running: Arc::default(),
            most: Arc::default(),
            open: Arc::new(Semaphore::new(open)),
            fails: Arc::default(),
        }
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

#[subscriber("orders")]
async fn ship(_order: u64, State(seen): State<Seen>) -> Result<(), String> {
    seen.calls.fetch_add(1, Ordering::SeqCst);
    let now = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
    seen.most.fetch_max(now, Ordering::SeqCst);
    let permit = seen.open.acquire().await;
    tokio::task::yield_now().await;
    seen.running.fetch_sub(1, Ordering::SeqCst);
    drop(permit);
    if seen.fails.load(Ordering::SeqCst) > 0 {
        seen.fails.fetch_sub(1, Ordering::SeqCst);
        return Err("it fails".to_owned());
    }
    Ok(())
}

#[subscriber("many")]
async fn ship_many(orders: &[u64], State(seen): State<Seen>) {
    seen.calls
        .fetch_add(u32::try_from(orders.len()).unwrap(), Ordering::SeqCst);
}

async fn tracked(place: &Place) -> Tracked<Database> {
    outbox(place)
        .await
        .tracked(["orders", "many"])
        .resend_after(Duration::from_millis(400))
}

async fn service(broker: &Picky, tracked: &Tracked<Database>, seen: &Seen) -> Running {
    RustStream::new(AppInfo::new("shop", "1.0.0"))
        .state(seen.clone())
        .with_broker(broker.clone(), |broker| {
            broker.publish_layer(tracked.record());
            broker.layer(tracked.mark(), |broker| {
                broker
                    .include(ship)
                    .workers(8)
                    .retry(Retry::fixed(Duration::from_millis(50)).attempts(50));
                broker.include(ship_many);
            });
        })
        .background(tracked.resend())
        .shutdown_grace(Duration::from_secs(5))
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_tracked_is_recorded_handled_once_and_marked() {
    let place = Place::new().await;
    // So long that a busy machine marks them before they are sent again.
    let tracked = tracked(&place).await.resend_after(PATIENCE);
    let (broker, seen) = (Picky::new(), Seen::new(100));
    let running = service(&broker, &tracked, &seen).await;
    let publisher = running.publisher();
    let sending = (0..200_u64).map(|order| publisher.publish("orders", &order).into_future());
    for sent in futures_util::future::join_all(sending).await {
        sent.unwrap();
    }
    eventually(async || tracked.open().await.unwrap(), |open| *open == (0, 0)).await;
    assert_eq!(seen.calls(), 200);
    assert_eq!(broker.taken().len(), 200);
    assert_eq!(
        place
            .number("SELECT count(*) FROM ruststream_tracked WHERE state = 2")
            .await,
        200
    );
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn batches_are_claimed_and_marked_together() {
    let place = Place::new().await;
    let tracked = tracked(&place).await;
    let (broker, seen) = (Picky::new(), Seen::new(1));
    let running = service(&broker, &tracked, &seen).await;
    let orders: Vec<u64> = (0..50).collect();
    running.publisher().publish_many("many", &orders).await.unwrap();
    eventually(async || tracked.open().await.unwrap(), |open| *open == (0, 0)).await;
    assert_eq!(seen.calls(), 50);
    running.shutdown().await.unwrap();
}

/// The broker takes a message and loses it: it is sent again, continuously and not only at a start.
#[tokio::test]
async fn what_was_lost_on_the_way_is_sent_again_while_the_app_runs() {
    let place = Place::new().await;
    let tracked = tracked(&place).await;
    let lost = Arc::new(AtomicU32::new(0));
    let losing = lost.clone();
    let broker = Picky::refusing(move |_, payload| {
        (payload == "3" && losing.fetch_add(1, Ordering::SeqCst) < 2).then_some(ErrorKind::Timeout)
    });
    let seen = Seen::new(100);
    let running = service(&broker, &tracked, &seen).await;
    for order in 1..=5_u64 {
        let sent = running.publisher().publish("orders", &order).await;
        assert_eq!(sent.is_err(), order == 3);
    }
    eventually(async || tracked.open().await.unwrap(), |open| *open == (0, 0)).await;
    assert_eq!(seen.calls(), 5);
    assert!(lost.load(Ordering::SeqCst) >= 3);
    running.shutdown().await.unwrap();
}

/// While a handler works for longer than it takes to send again, and longer than the lease, no second call runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_deliveries_of_one_record_never_both_run() {
    let place = Place::new().await;
    let tracked = tracked(&place).await.lease(Duration::from_millis(600));
    let (broker, seen) = (Picky::new(), Seen::new(0));
    let running = service(&broker, &tracked, &seen).await;
    running.publisher().publish("orders", &1_u64).await.unwrap();
    eventually(async || seen.calls(), |calls| *calls == 1).await;
    // Further deliveries of the same record, as a broker makes them.
    let id = broker.taken()[0].id.clone();
    let publisher = running.publisher().without_layers();
    for _ in 0..5 {
        publisher
            .publish("orders", &1_u64)
            .header("outbox-record", id.clone())
            .await
            .unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!((seen.calls(), seen.most.load(Ordering::SeqCst)), (1, 1));
    seen.open.add_permits(100);
    broker.memory.idle("orders").await;
    assert_eq!((seen.calls(), seen.most.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(tracked.open().await.unwrap(), (0, 0));
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_call_that_failed_leaves_no_mark() {
    let place = Place::new().await;
    let tracked = tracked(&place).await;
    let (broker, seen) = (Picky::new(), Seen::new(100));
    seen.fails.store(3, Ordering::SeqCst);
    let running = service(&broker, &tracked, &seen).await;
    running.publisher().publish("orders", &1_u64).await.unwrap();
    eventually(async || tracked.open().await.unwrap(), |open| *open == (0, 0)).await;
    assert_eq!(seen.calls(), 4);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn untracked_messages_pass_both_layers_without_the_database() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let tracked = outbox.tracked(["others"]);
    let (broker, seen) = (Picky::new(), Seen::new(100));
    let running = service(&broker, &tracked, &seen).await;
    running.publisher().publish("orders", &1_u64).await.unwrap();
    broker.memory.settled("orders", 1).await;
    assert_eq!(seen.calls(), 1);
    assert_eq!(place.number("SELECT count(*) FROM ruststream_tracked").await, 0);
    assert!(
        broker
            .memory
            .published("orders")
            .iter()
            .all(|one| one.headers.get("outbox-record").is_none())
    );
    running.shutdown().await.unwrap();
}

/// A header that anyone can write is not trusted: what is no id, or of no record, is handled as any other message.
#[tokio::test]
async fn ids_that_no_one_recorded_are_handled_as_untracked() {
    let place = Place::new().await;
    let tracked = tracked(&place).await;
    let (broker, seen) = (Picky::new(), Seen::new(100));
    let running = service(&broker, &tracked, &seen).await;
    let publisher = running.publisher().without_layers();
    for id in ["'); DROP TABLE x; --", "00000000000000000000000000000000"] {
        publisher
            .publish("orders", &1_u64)
            .header("outbox-record", id)
            .await
            .unwrap();
    }
    broker.memory.settled("orders", 2).await;
    assert_eq!(seen.calls(), 2);
    running.shutdown().await.unwrap();
}

/// What its subscription gave up is kept by the dead letter: it is not sent again, and may be replayed.
#[tokio::test]
async fn what_was_given_up_is_not_sent_again_and_may_be_replayed() {
    let place = Place::new().await;
    let tracked = outbox(&place)
        .await
        .tracked(["orders"])
        .resend_after(Duration::from_millis(200));
    let (broker, seen) = (Picky::new(), Seen::new(100));
    seen.fails.store(3, Ordering::SeqCst);
    let running = RustStream::new(AppInfo::new("shop", "1.0.0"))
        .state(seen.clone())
        .with_broker(broker.clone(), |broker| {
            broker.publish_layer(tracked.record());
            broker.layer(tracked.mark(), |broker| {
                broker
                    .include(ship)
                    .retry(Retry::fixed(Duration::from_millis(5)).attempts(3));
            });
        })
        .background(tracked.resend())
        .start()
        .await
        .unwrap();
    running.publisher().publish("orders", &1_u64).await.unwrap();
    eventually(async || broker.memory.dead_letters("orders").len(), |dead| *dead == 1).await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!((seen.calls(), broker.taken().len()), (3, 1));
    assert_eq!(tracked.open().await.unwrap(), (0, 0));

    assert_eq!(broker.memory.replay("orders"), 1);
    eventually(
        async || {
            place
                .number("SELECT count(*) FROM ruststream_tracked WHERE state = 2")
                .await
        },
        |done| *done == 1,
    )
    .await;
    assert_eq!(seen.calls(), 4);
    running.shutdown().await.unwrap();
}

/// No one marks it: it is sent so often, is parked then, and sent again when someone asks for it.
#[tokio::test]
async fn what_no_one_marks_is_parked_and_replayed() {
    let place = Place::new().await;
    let tracked = outbox(&place)
        .await
        .tracked(["nowhere"])
        .resend_after(Duration::from_millis(20))
        .attempts(3);
    let (broker, seen) = (Picky::new(), Seen::new(100));
    let running = service(&broker, &tracked, &seen).await;
    running.publisher().publish("nowhere", &1_u64).await.unwrap();
    eventually(async || tracked.open().await.unwrap(), |open| *open == (0, 1)).await;
    assert_eq!(broker.taken().len(), 4);
    assert_eq!(tracked.replay_parked().await.unwrap(), 1);
    eventually(async || broker.taken().len(), |sent| *sent == 7).await;
    running.shutdown().await.unwrap();
}

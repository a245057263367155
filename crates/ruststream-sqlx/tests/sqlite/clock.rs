//! Delays and leases by a clock that is turned by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Connection, Publish, Settle};
use ruststream_sqlx::Inbox;

use crate::place::Place;
use crate::support::{open, payloads, publish_numbers, subscribe};

/// A clock that stands still until it is turned.
#[derive(Clone, Default)]
struct Hands(Arc<AtomicU64>);

impl Hands {
    fn turn(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }

    fn clock(&self) -> impl Fn() -> SystemTime + Send + Sync + 'static {
        let millis = Arc::clone(&self.0);
        move || UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + millis.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn a_delayed_message_comes_when_it_is_due_and_not_before() {
    let place = Place::new().await;
    let hands = Hands::default();
    let connection = place
        .broker()
        .clock(hands.clock())
        .poll_interval(Duration::from_millis(5))
        .connect()
        .await
        .unwrap();
    let message = Outgoing::new("orders", b"later").with_delay(Duration::from_hours(1));
    connection.publisher().publish(&[message]).await.unwrap();
    let mut orders = subscribe(&connection, "orders").await;

    hands.turn(Duration::from_millis(3_599_999));
    assert!(orders.finds_nothing().await);
    assert_eq!(connection.queue_counts("orders").await.unwrap().scheduled, 1);
    hands.turn(Duration::from_millis(2));
    assert_eq!(payloads(&orders.next(1).await), ["later"]);
}

#[tokio::test]
async fn a_renewed_lease_lasts() {
    let place = Place::new().await;
    let hands = Hands::default();
    let broker = place
        .broker()
        .clock(hands.clock())
        .poll_interval(Duration::from_millis(5));
    let connection = broker.connect().await.unwrap();
    publish_numbers(&connection, "orders", 3).await;
    let mut orders = open(&connection, &Inbox::queue("orders").lease(Duration::from_secs(3))).await;
    let mut other = subscribe(&connection, "orders").await;
    let mut got = orders.take(3).await;
    let dropped = got.pop();
    drop(dropped);

    for _ in 0..5 {
        hands.turn(Duration::from_secs(2));
        let mut lost = Vec::new();
        orders.settle.renew(&mut lost).await.unwrap();
        assert!(lost.is_empty());
    }

    // What the process gave up is not renewed.
    let given_up = other.next(10).await;
    assert_eq!(payloads(&given_up), ["2"]);
    assert!(other.finds_nothing().await);
    assert_eq!(orders.ack(got).await.stale, 0);
}

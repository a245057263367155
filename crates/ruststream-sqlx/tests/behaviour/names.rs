//! Locks by name, beside leases.

use std::time::Duration;

use ruststream::message::Outgoing;
use ruststream::transport::{Connection, Delivery, Publish};
use ruststream_sqlx::{Inbox, LockKey};

use crate::place::Place;
use crate::support::{open, payloads, publish};

/// Makes the row free though its holder is alive: as if the lease had run out.
async fn end_leases(place: &Place) {
    place.sql(Place::END_LEASES).await;
}

#[tokio::test]
async fn what_is_locked_by_name_waits_and_no_attempt_is_counted() {
    let place = Place::new().await;
    let (one, other) = (place.connect().await, place.connect().await);
    publish(&one, "orders", &[b"x"]).await;
    let inbox = Inbox::queue("orders").advisory_lock(LockKey::Id);
    let mut here = open(&one, &inbox).await;
    let mut there = open(&other, &inbox).await;
    let held = here.next(1).await;
    end_leases(&place).await;
    assert!(there.finds_nothing().await);
    // Too late for the row, and in time for the lock.
    assert_eq!(here.ack(held).await.stale, 1);
    let again = there.next_one().await;
    assert_eq!(again.attempt(), 2, "the claims that found it locked are not counted");
    assert_eq!(there.ack(vec![again]).await.stale, 0);
}

#[tokio::test]
async fn by_the_key_of_messages_a_lock_keeps_their_order() {
    let place = Place::new().await;
    let (one, other) = (place.connect().await, place.connect().await);
    for payload in ["a0", "a1"] {
        let message = Outgoing::new("orders", payload.as_bytes()).with_key(b"a");
        one.publisher().publish(&[message]).await.unwrap();
    }
    let inbox = Inbox::queue("orders")
        .advisory_lock(LockKey::Key)
        .lease(Duration::from_secs(30));
    let mut here = open(&one, &inbox).await;
    let mut there = open(&other, &inbox).await;
    let first = here.next(10).await;
    assert_eq!(payloads(&first), ["a0"]);
    assert!(there.finds_nothing().await);
    here.ack(first).await;
    assert_eq!(payloads(&there.next(10).await), ["a1"]);
}

#[tokio::test]
async fn locks_end_with_their_subscription() {
    let place = Place::new().await;
    let (one, other) = (place.connect().await, place.connect().await);
    publish(&one, "orders", &[b"x"]).await;
    let inbox = Inbox::queue("orders").advisory_lock(LockKey::Id);
    let mut here = open(&one, &inbox).await;
    drop(here.next(1).await);
    drop(here);
    end_leases(&place).await;
    assert_eq!(open(&other, &inbox).await.next(1).await.len(), 1);
}

//! Rows that are locked while handlers work: a form that passes the suite, and what it does beside.

use std::time::Duration;

use ruststream::conformance::Harness;
use ruststream::transport::Broker;
use ruststream::transport::{Delivery, Settle, TransportError, Verdict};
use ruststream_sqlx::Inbox;

use crate::forms::Formed;
use crate::place::Place;
use crate::support::{eventually, numbers, open, payloads, publish_numbers, subscribe};

struct Here(Place);

/// While a row is locked no one gets it, whatever its lease: so the checks of what ends with a lease are not for it.
impl Harness for Here {
    type Broker = Formed;

    async fn start() -> Self {
        Self(Place::new().await)
    }

    fn broker(&self) -> Formed {
        Formed::new(self.0.broker(), Inbox::row_lock)
    }

    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let connection = self.0.broker().connect().await?;
        let letters = connection.dead_letters().list(name, 1000).await?;
        Ok(Some(letters.into_iter().map(|letter| letter.payload).collect()))
    }

    async fn cut(&self) -> bool {
        self.0.cut_links().await
    }
}

ruststream::conformance::suite!(Here);

fn locked() -> Inbox {
    Inbox::queue("orders").row_lock().lease(Duration::from_millis(100))
}

#[tokio::test]
async fn a_locked_row_is_no_one_elses_however_long_its_handler_takes() {
    let place = Place::new().await;
    let (one, other) = (place.connect().await, place.connect().await);
    publish_numbers(&one, "orders", 4).await;
    let mut here = open(&one, &locked()).await;
    let mut there = open(&other, &locked()).await;
    let mut all = here.take(4).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(there.finds_nothing().await);
    // What is settled is settled for good, and the others stay locked.
    let rest = all.split_off(2);
    assert_eq!(here.ack(all).await.stale, 0);
    assert_eq!(place.number("SELECT count(*) FROM ruststream_messages").await, 2);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(there.finds_nothing().await);
    assert_eq!(here.ack(rest).await.stale, 0);
    assert_eq!(place.number("SELECT count(*) FROM ruststream_messages").await, 0);
}

#[tokio::test]
async fn rows_come_back_soon_when_their_process_is_gone_and_the_attempt_was_counted() {
    let place = Place::new().await;
    let (one, other) = (place.connect().await, place.connect().await);
    publish_numbers(&one, "orders", 4).await;
    let mut here = open(&one, &locked()).await;
    let in_hand = here.take(4).await;
    drop(in_hand);
    drop(here);
    let mut there = open(&other, &locked()).await;
    let again = there.take(4).await;
    assert_eq!(payloads(&again), numbers(0..4));
    assert!(
        again
            .iter()
            .all(|delivery| delivery.attempt() == 2 && delivery.is_unfinished())
    );
    there.end(again, Verdict::Release).await;
}

#[tokio::test]
async fn rows_whose_connection_is_cut_are_held_by_their_lease_again() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 2).await;
    let mut here = open(
        &connection,
        &Inbox::queue("orders").row_lock().lease(Duration::from_secs(20)),
    )
    .await;
    let all = here.take(2).await;
    place.cut_links().await;
    let mut lost = Vec::new();
    // The locks are gone, the leases are not.
    let renewed = eventually(async || here.settle.renew(&mut lost).await, Result::is_ok).await;
    renewed.unwrap();
    assert!(lost.is_empty());
    let mut other = subscribe(&place.connect().await, "orders").await;
    assert!(other.finds_nothing().await);
    assert_eq!(here.ack(all).await.stale, 0);
    assert_eq!(place.number("SELECT count(*) FROM ruststream_messages").await, 0);
}

#[tokio::test]
async fn a_claim_waits_until_a_transaction_may_be_open() {
    let place = Place::new().await;
    let connection = place.broker().lock_connections(1).connect().await.unwrap();
    publish_numbers(&connection, "orders", 2).await;
    let mut orders = open(&connection, &locked()).await;
    let first = orders.next(1).await;
    assert!(orders.finds_nothing().await);
    orders.ack(first).await;
    assert_eq!(payloads(&orders.next(1).await), ["1"]);
}

#[tokio::test]
async fn too_few_connections_end_the_start_by_their_number() {
    let place = Place::new().await;
    let broker = place.broker().max_connections(5);
    for error in [broker.check().unwrap_err(), broker.connect().await.unwrap_err()] {
        for word in ["5 connections", ".max_connections(10)"] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
    place.broker().max_connections(10).connect().await.unwrap();
}

//! Who waits is woken: at once by the same process, soon by another, and never for nothing.

use std::time::Duration;

use crate::place::Place;
use crate::support;
use crate::support::{open, payloads, publish, publish_numbers, subscribe};
use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Connection, Delivery, Publish, Verdict};
use ruststream_sqlx::{Inbox, SqlxConnection, Statistics};
use tokio::time::Instant;

/// What the connection has done, once so many claims have found nothing and all of them only wait.
async fn at_rest(connection: &SqlxConnection, empty_claims: u64) -> Statistics {
    let mut last = connection.statistics();
    let looking = async || {
        // Longer than a claim takes, or the news of a listener that has just begun.
        tokio::time::sleep(Duration::from_millis(60)).await;
        let now = connection.statistics();
        let rests = now.claims == last.claims && now.empty_claims >= empty_claims;
        last = now;
        rests.then_some(now)
    };
    support::eventually(looking, Option::is_some).await.unwrap()
}

#[tokio::test]
async fn a_publish_of_the_same_connection_wakes_at_once() {
    let place = Place::new().await;
    // Polling could not do it.
    let broker = place.broker().poll_interval(Duration::from_mins(1));
    let connection = broker.connect().await.unwrap();
    let mut orders = subscribe(&connection, "orders").await;
    for _ in 0..20 {
        let publisher = connection.publisher();
        let publishing = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            publisher.publish(&[Outgoing::new("orders", b"x")]).await.unwrap();
            Instant::now()
        });
        let got = orders.next(1).await;
        let arrived = Instant::now();
        assert!(arrived - publishing.await.unwrap() < Duration::from_millis(100));
        orders.ack(got).await;
    }
}

#[tokio::test]
async fn a_publish_of_another_connection_wakes_soon() {
    let place = Place::new().await;
    let (here, there) = (place.connect().await, place.connect().await);
    let mut orders = subscribe(&here, "orders").await;
    let mut slowest = Duration::ZERO;
    for _ in 0..8 {
        assert!(orders.finds_nothing().await);
        let start = Instant::now();
        publish(&there, "orders", &[b"x"]).await;
        let got = orders.next(1).await;
        slowest = slowest.max(start.elapsed());
        orders.ack(got).await;
    }
    assert!(slowest < Place::WOKEN_WITHIN, "{slowest:?}");
}

#[tokio::test]
async fn a_row_that_any_program_writes_wakes_too() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let mut orders = subscribe(&connection, "orders").await;
    assert!(orders.finds_nothing().await);
    place
        .sql("INSERT INTO ruststream_messages (queue, payload) VALUES ('orders', 'x')")
        .await;
    assert_eq!(payloads(&orders.next(1).await), ["x"]);
}

#[tokio::test]
async fn waiting_does_not_spin() {
    let place = Place::new().await;
    let connection = place.broker_that_hears_nothing().connect().await.unwrap();
    publish_numbers(&connection, "later", 1).await;
    let delayed = Outgoing::new("orders", b"x").with_delay(Duration::from_mins(50));
    connection.publisher().publish(&[delayed]).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let mut orders = subscribe(&connection, "orders").await;
        waiting.push(tokio::spawn(async move { orders.next(1).await }));
    }
    let before = at_rest(&connection, 10).await;

    tokio::time::sleep(Duration::from_secs(1)).await;

    let after = connection.statistics();
    assert_eq!(after.claims, before.claims, "no claim while nothing changes");
    let polls = after.polls - before.polls;
    let polling = if Place::POLLS_ASK { polls } else { 0 };
    assert_eq!(
        after.transactions,
        before.transactions + polling,
        "no other statement either"
    );
    assert!(
        Place::POLLS_A_SECOND.contains(&polls),
        "{polls} looks a second, for all subscriptions together"
    );
    for task in waiting {
        task.abort();
    }
}

#[tokio::test]
async fn one_new_row_wakes_one_of_many() {
    let place = Place::new().await;
    let connection = place.broker_that_hears_nothing().connect().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let mut orders = subscribe(&connection, "orders").await;
        waiting.spawn(async move { orders.next(1).await });
    }
    let before = at_rest(&connection, 10).await;

    publish(&connection, "orders", &[b"x"]).await;
    waiting.join_next().await.unwrap().unwrap();

    let after = connection.statistics();
    assert_eq!(after.claims - before.claims, 1);
    let polling = if Place::POLLS_ASK {
        after.polls - before.polls
    } else {
        0
    };
    assert_eq!(
        after.transactions - before.transactions - polling,
        Place::STATEMENTS_A_MESSAGE,
        "an insert and a claim"
    );
}

#[tokio::test]
async fn a_retry_and_a_release_wake_other_subscriptions() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let mut first = subscribe(&connection, "orders").await;
    let mut second = subscribe(&connection, "orders").await;
    publish(&connection, "orders", &[b"x"]).await;
    let got = first.next(1).await;
    let waiting = tokio::spawn(async move {
        let got = second.next(1).await;
        (second, got)
    });
    at_rest(&connection, 1).await;
    let start = Instant::now();
    let after = Duration::from_millis(30);
    first.end(got, Verdict::Retry { after }).await;
    let (mut second, got) = waiting.await.unwrap();
    assert!(
        start.elapsed() >= after && start.elapsed() < Duration::from_millis(500),
        "{:?}",
        start.elapsed()
    );

    let waiting = tokio::spawn(async move { first.next(1).await });
    at_rest(&connection, 2).await;
    second.end(got, Verdict::Release).await;
    assert_eq!(waiting.await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_lease_that_ends_wakes_who_waits() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish(&connection, "orders", &[b"x"]).await;
    let mut first = open(&connection, &Inbox::queue("orders").lease(Duration::from_millis(200))).await;
    let mut second = subscribe(&connection, "orders").await;
    let start = Instant::now();
    let _given_up = first.next(1).await;
    let got = second.next(1).await;
    assert_eq!(got[0].attempt(), 2);
    assert!(start.elapsed() >= Duration::from_millis(195) && start.elapsed() < Duration::from_millis(700));
}

//! What is written with a transaction is published with all it was given, if the transaction commits.

use std::time::Duration;

use tokio::time::Instant;

use ruststream::message::header;
use ruststream::prelude::*;

use crate::kit::{drained, outbox, quick, relaying, texts, write};
use crate::picky::Picky;
use crate::place::Place;

#[tokio::test]
async fn a_message_is_published_if_its_transaction_commits_and_only_then() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let broker = Picky::new();
    let running = relaying(&broker, quick(&outbox)).await;
    let pool = place.pool().await;

    let mut undone = pool.begin().await.unwrap();
    outbox.publish(&mut undone, "orders", &1_u64).await.unwrap();
    undone.rollback().await.unwrap();
    let mut open = pool.begin().await.unwrap();
    outbox.publish(&mut open, "orders", &2_u64).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(broker.taken().is_empty());
    outbox.commit(open).await.unwrap();

    drained(&outbox, 0).await;
    let taken = broker.taken();
    assert_eq!(taken.len(), 1);
    assert_eq!(
        (taken[0].destination.as_str(), taken[0].payload.as_str()),
        ("orders", "2")
    );
    assert_eq!(taken[0].id.len(), 32);
    running.shutdown().await.unwrap();
}

#[derive(Serialize, Deserialize, Message)]
#[message(destination = "orders.{region}")]
struct Order {
    region: String,
}

#[tokio::test]
async fn headers_key_id_and_the_destination_of_a_type_are_those_of_any_publish() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let broker = Picky::new();
    let pool = place.pool().await;
    let mut tx = pool.begin().await.unwrap();
    let order = Order {
        region: "eu".to_owned(),
    };
    let sent = outbox
        .send(&mut tx, &order)
        .header("trace", "7")
        .header(header::MESSAGE_ID, "mine")
        .key("c-1");
    sent.await.unwrap();
    tx.commit().await.unwrap();
    let running = relaying(&broker, quick(&outbox)).await;
    drained(&outbox, 0).await;

    let standing = broker.memory.published("orders.eu");
    assert_eq!(&standing[0].payload[..], br#"{"region":"eu"}"#);
    assert_eq!(standing[0].headers.get_str("trace"), Some("7"));
    assert_eq!(standing[0].headers.get_str(header::MESSAGE_ID), Some("mine"));
    assert_eq!(
        standing[0].headers.get_str(header::CONTENT_TYPE),
        Some("application/json")
    );
    assert_eq!(standing[0].key.as_deref(), Some(&b"c-1"[..]));
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_delayed_message_waits_in_the_outbox_and_lets_its_key_pass() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let broker = Picky::new();
    let running = relaying(&broker, quick(&outbox)).await;
    let pool = place.pool().await;
    let written = Instant::now();
    let mut tx = pool.begin().await.unwrap();
    outbox
        .publish(&mut tx, "orders", &1_u64)
        .key("a")
        .delay(Duration::from_millis(600))
        .await
        .unwrap();
    outbox.publish(&mut tx, "orders", &2_u64).key("a").await.unwrap();
    outbox.commit(tx).await.unwrap();
    assert!(outbox.lag().await.unwrap().scheduled <= 1);

    drained(&outbox, 0).await;
    assert_eq!(broker.of("a"), ["2", "1"]);
    let late = broker.taken()[1].at - written;
    assert!(late >= Duration::from_millis(600), "it came after {late:?}");
    running.shutdown().await.unwrap();
}

/// C04: what an earlier transaction commits later is published all the same, and holds up no one meanwhile.
#[tokio::test]
async fn a_transaction_that_commits_late_is_not_passed_over() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let broker = Picky::new();
    let running = relaying(&broker, quick(&outbox)).await;
    let pool = place.pool().await;
    let mut first = pool.begin().await.unwrap();
    // A file has one writer: there the second waits for the first by nature.
    let one_writer = place.url().starts_with("sqlite");
    outbox.publish(&mut first, "orders", &1_u64).key("a").await.unwrap();
    if one_writer {
        first.commit().await.unwrap();
        write(&outbox, &place, "a", 2..=2).await;
        drained(&outbox, 0).await;
    } else {
        write(&outbox, &place, "a", 2..=2).await;
        crate::kit::eventually(async || broker.of("a"), |taken| *taken == ["2"]).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        outbox.commit(first).await.unwrap();
        drained(&outbox, 0).await;
    }
    let mut all = broker.of("a");
    all.sort();
    assert_eq!(all, texts(1..=2));
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_written_is_told_before_it_reaches_the_database() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let pool = place.pool().await;
    let mut tx = pool.begin().await.unwrap();
    let error = outbox.publish(&mut tx, "", &1_u64).await.unwrap_err();
    assert!(error.to_string().contains("empty"), "{error}");
    let error = outbox
        .publish(&mut tx, "orders", &1_u64)
        .key(vec![b'k'; 501])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("501"), "{error}");
    let error = outbox
        .publish(
            &mut tx,
            ruststream::publish::fill("orders.{region}", &[("region", &"a.b")]),
            &1_u64,
        )
        .await;
    assert!(error.is_err());
    // The transaction is as good as before.
    outbox.publish(&mut tx, "orders", &1_u64).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(outbox.lag().await.unwrap().waiting, 1);
}

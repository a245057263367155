//! On Postgres, relays of other processes are told of a message when its transaction commits.

use std::time::Duration;

use tokio::time::Instant;

use ruststream_sqlx::Outbox;

use crate::kit::{drained, eventually, outbox, quick, relaying, write};
use crate::picky::Picky;
use crate::place::Place;

#[tokio::test]
async fn a_relay_elsewhere_is_told_at_the_commit() {
    let place = Place::new().await;
    let here = outbox(&place).await;
    let broker = Picky::new();
    let running = relaying(&broker, quick(&here).poll_interval(Duration::from_mins(1))).await;
    // Another outbox, as another process has it: the two share no memory.
    let elsewhere = Outbox::new(place.pool().await);
    let listening =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND application_name = current_schema()";
    eventually(async || place.number(listening).await, |count| *count == 1).await;
    for round in 1..=5 {
        let written = Instant::now();
        write(&elsewhere, &place, "a", round..=round).await;
        eventually(async || broker.taken().len() as u64, |taken| *taken == round).await;
        assert!(written.elapsed() < Duration::from_secs(2), "round {round}");
    }
    running.shutdown().await.unwrap();
}

/// C01: a listener that is cut off misses nothing for longer than it takes to listen again.
#[tokio::test]
async fn a_listener_that_is_cut_off_catches_up() {
    let place = Place::new().await;
    let here = outbox(&place).await;
    let broker = Picky::new();
    let running = relaying(&broker, quick(&here).poll_interval(Duration::from_mins(1))).await;
    let listening =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND application_name = current_schema()";
    eventually(async || place.number(listening).await, |count| *count == 1).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND application_name = current_schema()";
    place.sql(cut).await;
    let elsewhere = Outbox::new(place.pool().await);
    write(&elsewhere, &place, "a", 1..=10).await;
    let written = Instant::now();
    drained(&here, 0).await;
    assert!(written.elapsed() < Duration::from_secs(3));
    running.shutdown().await.unwrap();
}

/// C35: many inserts in one transaction tell once; a long name and a large payload tell as well.
#[tokio::test]
async fn ten_thousand_inserts_of_one_transaction_are_told_once() {
    let place = Place::new().await;
    let here = outbox(&place).await;
    let pool = place.pool().await;
    let mut tx = pool.begin().await.unwrap();
    let messages = (0..10_000_u64).map(|number| here.message("orders", &number));
    here.publish_all(&mut tx, messages).await.unwrap();
    let large = "x".repeat(1024 * 1024);
    here.publish(&mut tx, "q".repeat(200), &large).await.unwrap();
    tx.commit().await.unwrap();
    let broker = Picky::new();
    let running = relaying(&broker, quick(&here)).await;
    drained(&here, 0).await;
    assert_eq!(broker.taken().len(), 10_001);
    running.shutdown().await.unwrap();
}

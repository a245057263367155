//! Relays: any number of them, order within keys, poison, a broker that is away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use ruststream::app::BackgroundState;
use ruststream::memory::Operation;
use ruststream::transport::ErrorKind;

use crate::kit::{drained, eventually, outbox, quick, relaying, texts, write};
use crate::picky::Picky;
use crate::place::Place;

/// C33: three relays; of a key one record is refused four times, of another one for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_relays_keep_the_order_of_keys_and_park_what_is_refused_for_ever() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let refused = Arc::new(AtomicU32::new(0));
    let broker = Picky::refusing(move |key, payload| match (key, payload) {
        ("a", "5") if refused.fetch_add(1, Ordering::SeqCst) < 4 => Some(ErrorKind::Busy),
        ("b", "7") => Some(ErrorKind::Unavailable),
        _ => None,
    });
    for key in ["a", "b", "c"] {
        write(&outbox, &place, key, 1..=300).await;
    }
    write(&outbox, &place, "", 1..=300).await;
    let begun = Instant::now();
    let mut relays = Vec::new();
    for _ in 0..3 {
        relays.push(relaying(&broker, quick(&outbox).attempts(6)).await);
    }
    drained(&outbox, 1).await;

    assert_eq!(broker.of("a"), texts(1..=300));
    assert_eq!(broker.of("c"), texts(1..=300));
    let without_seven: Vec<_> = texts(1..=300).into_iter().filter(|number| number != "7").collect();
    assert_eq!(broker.of("b"), without_seven);
    let unkeyed: BTreeSet<_> = broker.of("").into_iter().collect();
    assert_eq!((broker.of("").len(), unkeyed.len()), (300, 300));
    assert!(begun.elapsed() < Duration::from_secs(20));

    let parked = outbox.parked().list(0, 10).await.unwrap();
    assert_eq!((parked.len(), parked[0].attempts), (1, 6));
    assert_eq!(
        (parked[0].key.as_deref(), &parked[0].payload[..]),
        (Some(&b"b"[..]), &b"7"[..])
    );
    assert!(parked[0].error.contains("the test refuses it"), "{}", parked[0].error);
    for relay in relays {
        relay.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn messages_of_different_keys_travel_in_groups() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    for key in 0..100 {
        write(&outbox, &place, &format!("k{key}"), 1..=1).await;
    }
    let broker = Picky::new();
    let running = relaying(&broker, quick(&outbox)).await;
    drained(&outbox, 0).await;
    assert_eq!(broker.taken().len(), 100);
    assert!(broker.groups().len() <= 3, "{:?}", broker.groups());
    running.shutdown().await.unwrap();
}

/// One that spoils the group for all is found, and parked alone.
#[tokio::test]
async fn a_record_that_no_attempt_helps_is_parked_and_its_key_goes_on() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let broker = Picky::refusing(|key, payload| (key == "a" && payload == "2").then_some(ErrorKind::TooLarge));
    write(&outbox, &place, "a", 1..=4).await;
    let running = relaying(&broker, quick(&outbox).attempts(3)).await;
    drained(&outbox, 1).await;
    assert_eq!(broker.of("a"), ["1", "3", "4"]);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_key_of_a_parked_record_stands_still_where_that_is_asked_for() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let open = Arc::new(AtomicU32::new(0));
    let closed = open.clone();
    let broker = Picky::refusing(move |key, payload| {
        (key == "a" && payload == "2" && closed.load(Ordering::SeqCst) == 0).then_some(ErrorKind::Refused)
    });
    write(&outbox, &place, "a", 1..=4).await;
    write(&outbox, &place, "b", 1..=4).await;
    let running = relaying(&broker, quick(&outbox).attempts(2).parked_keys_stop()).await;
    eventually(
        async || (outbox.lag().await.unwrap(), broker.of("b")),
        |(lag, b)| lag.parked == 1 && b.len() == 4,
    )
    .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(broker.of("a"), ["1"]);
    assert_eq!(outbox.lag().await.unwrap().waiting, 2);

    open.store(1, Ordering::SeqCst);
    assert_eq!(outbox.parked().replay_all().await.unwrap(), 1);
    drained(&outbox, 0).await;
    assert_eq!(broker.of("a"), texts(1..=4));
    running.shutdown().await.unwrap();
}

/// No attempt is counted while the broker is away, however long: nothing is parked, and the health says why.
#[tokio::test]
async fn a_broker_that_is_away_is_waited_for() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let broker = Picky::new();
    let running = relaying(&broker, quick(&outbox).attempts(2)).await;
    broker.memory.set_down(true);
    write(&outbox, &place, "a", 1..=20).await;
    write(&outbox, &place, "", 1..=20).await;
    outbox.wake();
    let failing = async || running.health().background[0].clone();
    let health = eventually(failing, |health| health.state == BackgroundState::Failing).await;
    assert!(health.reason.unwrap().contains("picky"));
    assert!(!running.health().is_ready());
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(broker.taken().is_empty());

    broker.memory.set_down(false);
    drained(&outbox, 0).await;
    assert_eq!(broker.of("a"), texts(1..=20));
    eventually(failing, |health| health.state == BackgroundState::Running).await;
    assert_eq!(place.number("SELECT count(*) FROM ruststream_outbox").await, 0);
    running.shutdown().await.unwrap();
}

/// As a Redis without memory does: it answers, and takes nothing. What it would take is published meanwhile.
#[tokio::test]
async fn a_broker_that_has_no_room_is_waited_for() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let full = Arc::new(AtomicU32::new(1));
    let is_full = full.clone();
    let broker =
        Picky::refusing(move |key, _| (key == "a" && is_full.load(Ordering::SeqCst) == 1).then_some(ErrorKind::Busy));
    let running = relaying(&broker, quick(&outbox).attempts(2)).await;
    write(&outbox, &place, "a", 1..=5).await;
    write(&outbox, &place, "b", 1..=5).await;
    let tried = async || broker.groups().len();
    eventually(tried, |tried| *tried > 6).await;
    eventually(async || broker.of("b"), |b| b.len() == 5).await;
    let failing = async || running.health().background[0].clone();
    eventually(failing, |health| health.state == BackgroundState::Failing).await;
    assert_eq!(outbox.lag().await.unwrap().parked, 0);

    full.store(0, Ordering::SeqCst);
    drained(&outbox, 0).await;
    assert_eq!(broker.of("a"), texts(1..=5));
    running.shutdown().await.unwrap();
}

/// A call that fails as a whole though the broker is there: each is tried by itself.
#[tokio::test]
async fn a_group_that_failed_as_a_whole_is_sent_one_by_one() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    write(&outbox, &place, "", 1..=10).await;
    let broker = Picky::new();
    broker.memory.fail_next(Operation::Publish, 12, ErrorKind::Timeout);
    let running = relaying(&broker, quick(&outbox)).await;
    drained(&outbox, 0).await;
    let taken: BTreeMap<_, _> = broker.taken().into_iter().map(|one| (one.payload, one.id)).collect();
    assert_eq!(taken.len(), 10);
    running.shutdown().await.unwrap();
}

/// What a relay held that vanished is published by another when the lease has passed, under the same id, and not before.
#[tokio::test]
async fn what_a_lost_relay_held_is_published_when_its_lease_has_passed() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    write(&outbox, &place, "a", 1..=3).await;
    // As a relay leaves them that was killed in the middle.
    let now = match place.url().split(':').next() {
        Some("sqlite") => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        Some("postgres") => "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
        _ => "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
    };
    let leased = format!("UPDATE ruststream_outbox SET token = 5, held_until = {now} + 700 WHERE id <= 2");
    place.sql(&leased).await;
    let since = Instant::now();
    let broker = Picky::new();
    let running = relaying(&broker, quick(&outbox)).await;
    drained(&outbox, 0).await;
    assert_eq!(broker.of("a"), texts(1..=3), "3 waits for those before it");
    assert!(since.elapsed() >= Duration::from_millis(650));
    assert_eq!(place.number("SELECT count(*) FROM ruststream_outbox").await, 0);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn several_workers_of_one_relay_keep_the_order_of_keys() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    for round in 0..4 {
        for key in ["a", "b", "c", "d", "e"] {
            write(&outbox, &place, key, round * 50 + 1..=round * 50 + 50).await;
        }
    }
    let broker = Picky::new();
    let running = relaying(&broker, quick(&outbox).workers(4).batch(32)).await;
    drained(&outbox, 0).await;
    for key in ["a", "b", "c", "d", "e"] {
        assert_eq!(broker.of(key), texts(1..=200), "{key}");
    }
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn published_records_stay_as_long_as_they_are_kept_and_go_then() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    write(&outbox, &place, "a", 1..=30).await;
    let broker = Picky::new();
    let running = relaying(&broker, quick(&outbox).keep_published(Duration::from_millis(1500))).await;
    drained(&outbox, 0).await;
    assert_eq!(
        place
            .number("SELECT count(*) FROM ruststream_outbox WHERE state = 2")
            .await,
        30
    );
    eventually(
        async || place.number("SELECT count(*) FROM ruststream_outbox").await,
        |left| *left == 0,
    )
    .await;
    assert_eq!(broker.taken().len(), 30);
    running.shutdown().await.unwrap();
}

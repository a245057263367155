//! A database that is cut off from its relay, and comes back.

use std::time::Duration;

use ruststream::app::BackgroundState;
use ruststream_sqlx::Outbox;
use servers::Proxy;

use crate::kit::{drained, eventually, outbox, quick, relaying, texts, write};
use crate::picky::Picky;
use crate::place::Place;

/// Links that are cut again and again, also between the publish and the mark: nothing is lost, the order of a key is kept but for what is
/// published again, and that bears the same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_are_cut_lose_nothing_and_keep_the_order() {
    let place = Place::new().await;
    let direct = outbox(&place).await;
    let proxy = Proxy::to(place.port()).unwrap();
    let through = Outbox::new(place.through(proxy.port()).pool().await);
    let broker = Picky::new();
    let relay = quick(&through).lease(Duration::from_secs(1)).batch(16).attempts(1_000);
    let running = relaying(&broker, relay).await;
    for round in 0..10 {
        write(&direct, &place, "a", round * 50 + 1..=round * 50 + 50).await;
        through.wake();
        tokio::time::sleep(Duration::from_millis(fastrand::u64(10..80))).await;
        proxy.cut();
    }
    drained(&direct, 0).await;
    let mut ids = std::collections::BTreeMap::new();
    let mut firsts = Vec::new();
    for one in broker.taken() {
        if let Some(id) = ids.insert(one.payload.clone(), one.id.clone()) {
            assert_eq!(id, one.id, "what comes again has its id");
        } else {
            firsts.push(one.payload);
        }
    }
    assert_eq!(firsts, texts(1..=500));
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_silent_is_told_of_and_found_again() {
    let place = Place::new().await;
    let direct = outbox(&place).await;
    let proxy = Proxy::to(place.port()).unwrap();
    let through = Outbox::new(place.through(proxy.port()).pool().await);
    let broker = Picky::new();
    let running = relaying(&broker, quick(&through).lease(Duration::from_secs(2))).await;
    write(&direct, &place, "a", 1..=10).await;
    drained(&direct, 0).await;
    proxy.stall();
    let state = async || running.health().background[0].state;
    eventually(state, |state| *state == BackgroundState::Failing).await;
    write(&direct, &place, "a", 11..=20).await;
    proxy.heal();
    drained(&direct, 0).await;
    eventually(state, |state| *state == BackgroundState::Running).await;
    assert_eq!(broker.of("a"), texts(1..=20));
    running.shutdown().await.unwrap();
}

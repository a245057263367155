//! What is given back at a shutdown, what cannot be stored, and what never ends: the edges of the promises.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::future::ready;

use common::{Record, app, handler, health, publish_ids, publish_keyed, start, within};
use ruststream::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_key_keeps_its_order_through_a_shutdown_in_the_middle_of_its_retry() {
    let (broker, seen) = (MemoryBroker::new(), Record::<(u64, u32)>::default());
    let node = || {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    seen.add((given.id(), given.attempt));
                    ready(if given.id() == 1 && given.attempt == 1 {
                        Err("once")
                    } else {
                        Ok(())
                    })
                }))
                .retry(Retry::fixed(10 * SECOND))
                .ordered_by(OrderBy::key());
        })
    };
    for id in 1..=3 {
        publish_keyed(&broker, "orders", "k", &id.to_string()).await;
    }
    let a = node().await;
    seen.reaches(1).await;
    a.shutdown().await.unwrap();
    let b = node().await;
    within(broker.idle("orders")).await;
    b.shutdown().await.unwrap();
    assert_eq!(seen.all(), [(1, 1), (1, 2), (2, 1), (3, 1)]);
}

#[tokio::test(start_paused = true)]
async fn attempts_of_an_ordered_subscription_are_counted_over_restarts() {
    let (broker, seen) = (MemoryBroker::new(), Record::<u32>::default());
    let node = || {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    seen.add(given.attempt);
                    ready(Err::<(), _>("no"))
                }))
                .retry(Retry::fixed(10 * SECOND).attempts(4))
                .ordered_by(OrderBy::key());
        })
    };
    publish_keyed(&broker, "orders", "k", "1").await;
    let a = node().await;
    seen.reaches(3).await;
    a.shutdown().await.unwrap();
    let b = node().await;
    within(broker.idle("orders")).await;
    b.shutdown().await.unwrap();
    assert_eq!(seen.all(), [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_never_returns_does_not_keep_the_app() {
    let running = app(MemoryBroker::new(), |scope| {
        scope.include(handler("orders", |_| ready(())));
    })
    .on_shutdown(|_| std::future::pending())
    .shutdown_grace(5 * SECOND)
    .start()
    .await
    .unwrap();
    assert!(tokio::time::timeout(600 * SECOND, running.shutdown()).await.is_ok());
}

#[tokio::test]
async fn two_brokers_of_one_label_are_told_apart() {
    let (one, other) = (MemoryBroker::new(), MemoryBroker::new());
    let running = app(one.clone(), |_| {})
        .with_broker(other.clone(), |_| {})
        .start()
        .await
        .unwrap();

    running
        .publisher_on("memory #2")
        .unwrap()
        .publish("orders", &1)
        .await
        .unwrap();

    assert_eq!((one.published("orders").len(), other.published("orders").len()), (0, 1));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_that_ends_its_process_each_time_becomes_a_dead_letter() {
    let (broker, seen) = (MemoryBroker::new(), Record::<u32>::default());
    publish_ids(&broker, "orders", [1]).await;
    for _ in 0..4 {
        let seen = seen.clone();
        let running = start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    seen.add(given.attempt);
                    std::future::pending::<()>()
                }))
                .retry(Retry::fixed(SECOND).attempts(3));
        })
        .await;
        tokio::time::sleep(SECOND).await;
        // What the death of a process is to its broker.
        broker.cut();
        running.stop();
    }
    assert_eq!(seen.all(), [1, 2, 3]);
    let letters = broker.dead_letters("orders");
    assert_eq!((letters.len(), letters[0].letter.attempts), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn dead_letters_that_cannot_be_stored_stand_in_the_health() {
    let broker = MemoryBroker::new().capacity(1).publish_deadline(SECOND);
    publish_ids(&broker, "full", [0]).await;
    let running = start(broker.clone(), |scope| {
        scope
            .include(handler("orders", |_| ready(Err::<(), _>("no"))))
            .retry(Retry::never())
            .dead_letter("full");
    })
    .await;
    publish_ids(&broker, "orders", [1]).await;
    tokio::time::sleep(3_600 * SECOND).await;
    assert!(!running.health().is_ready(), "{:?}", health(&running));
}

//! Pausing and resuming a subscription while it runs.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use common::{Gate, Record, handler, health, publish_ids, publish_keyed, start, within};
use ruststream::app::SubscriptionState;
use ruststream::memory::Operation;
use ruststream::prelude::*;
use ruststream::transport::ErrorKind;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_paused_subscription_takes_nothing_more_until_it_is_resumed() {
    let (broker, seen) = (MemoryBroker::new(), Record::<u64>::default());
    let running = {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope.include(handler("orders", move |given| {
                seen.add(given.id());
                std::future::ready(())
            }));
        })
        .await
    };
    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;

    assert!(running.pause("orders"));
    tokio::time::sleep(SECOND).await;
    publish_ids(&broker, "orders", [2, 3]).await;
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!((seen.all(), broker.published("orders").len()), (vec![1], 2));
    assert_eq!(health(&running).state, SubscriptionState::Paused);
    assert!(running.health().is_ready());

    assert!(running.resume("orders"));
    within(broker.idle("orders")).await;
    assert_eq!(seen.all(), [1, 2, 3]);
    assert_eq!(health(&running).state, SubscriptionState::Running);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_in_hand_is_finished() {
    let (broker, gate, seen) = (MemoryBroker::new(), Gate::closed(), Record::<u64>::default());
    let running = {
        let (gate, seen) = (gate.clone(), seen.clone());
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    seen.add(given.id());
                    let gate = gate.clone();
                    async move { gate.pass().await }
                }))
                .prefetch(3);
        })
        .await
    };
    publish_ids(&broker, "orders", 1..=10).await;
    seen.reaches(1).await;

    // Paused while the fetcher waits for room.
    running.pause("orders");
    gate.let_go(100);
    tokio::time::sleep(100 * SECOND).await;

    assert_eq!((seen.all(), health(&running).in_hand), (vec![1, 2, 3], 0));
    assert_eq!(broker.published("orders").len(), 7);
    running.resume("orders");
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_the_named_one_is_paused_and_an_unknown_name_is_said() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| std::future::ready(())));
        scope.include(handler("payments", |_| std::future::ready(())));
    })
    .await;

    assert!(running.pause("orders"));
    assert!(!running.pause("order"));
    assert!(!running.resume("order"));
    tokio::time::sleep(SECOND).await;
    publish_ids(&broker, "orders", [1]).await;
    publish_ids(&broker, "payments", [1]).await;
    within(broker.idle("payments")).await;

    assert_eq!(broker.held("orders"), 1);
    running.shutdown().await.unwrap();
    assert_eq!(broker.published("orders")[0].attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn ordered_retries_that_are_due_are_made_all_the_same() {
    let (broker, seen) = (MemoryBroker::new(), Record::<u32>::default());
    let running = {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    seen.add(given.attempt);
                    std::future::ready(if given.attempt < 3 { Err("no") } else { Ok(()) })
                }))
                .retry(Retry::fixed(SECOND))
                .ordered_by(OrderBy::key());
        })
        .await
    };
    publish_keyed(&broker, "orders", "k", "1").await;
    seen.reaches(1).await;

    running.pause("orders");
    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), [1, 2, 3]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_in_trouble_holds_when_the_trouble_is_over() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| std::future::ready(())));
    })
    .await;
    tokio::time::sleep(SECOND).await;
    broker.fail_next(Operation::Fetch, 3, ErrorKind::Unavailable);
    broker.cut();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(health(&running).state, SubscriptionState::Degraded);

    running.pause("orders");
    tokio::time::sleep(100 * SECOND).await;
    publish_ids(&broker, "orders", [1]).await;
    tokio::time::sleep(100 * SECOND).await;

    assert_eq!(broker.published("orders").len(), 1);
    assert_eq!(health(&running).state, SubscriptionState::Paused);
    running.resume("orders");
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pausing_and_resuming_again_and_again_loses_and_doubles_nothing() {
    let (broker, seen) = (MemoryBroker::new(), Record::<u64>::default());
    let running = {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    seen.add(given.id());
                    tokio::time::sleep(Duration::from_millis(given.id() % 3))
                }))
                .workers(3);
        })
        .await
    };
    for id in 0..200 {
        publish_ids(&broker, "orders", [id]).await;
        match id % 4 {
            0 => running.pause("orders"),
            2 => running.resume("orders"),
            _ => true,
        };
        tokio::time::sleep(Duration::from_millis(id % 5)).await;
    }
    running.resume("orders");
    within(broker.idle("orders")).await;

    let mut ids = seen.all();
    ids.sort_unstable();
    assert_eq!(ids, (0..200).collect::<Vec<_>>());
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_paused_app_stops_at_once() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| std::future::ready(())));
    })
    .await;
    running.pause("orders");
    tokio::time::sleep(SECOND).await;

    let begun = tokio::time::Instant::now();
    running.shutdown().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

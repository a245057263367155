//! A stack of tower's layers around handlers.
#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::error::Error;

use common::{Gate, Record, batch_handler, handler, publish_ids, start, within};
use ruststream::layer::{HandlerCall, HandlerService, Tower};
use ruststream::prelude::*;
use tokio::time::Instant;
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;
use tower::{ServiceBuilder, ServiceExt};

type BoxError = Box<dyn Error + Send + Sync>;

#[tokio::test(start_paused = true)]
async fn a_limit_holds_for_all_handlers_under_it() {
    let (broker, gate, begun) = (MemoryBroker::new(), Gate::closed(), Record::default());
    let running = start(broker.clone(), |scope| {
        scope.layer(Tower::new(ServiceBuilder::new().concurrency_limit(3)), |scope| {
            for name in ["orders", "invoices"] {
                let (gate, begun) = (gate.clone(), begun.clone());
                let held = handler(name, move |given| {
                    let (gate, begun) = (gate.clone(), begun.clone());
                    async move {
                        begun.add(given.id());
                        gate.pass().await;
                    }
                });
                scope.include(held).workers(8);
            }
        });
    })
    .await;

    publish_ids(&broker, "orders", 0..5).await;
    publish_ids(&broker, "invoices", 5..10).await;
    begun.reaches(3).await;
    // Time passes only when nothing else can be done.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(begun.len(), 3);
    gate.let_go(2);
    begun.reaches(5).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(begun.len(), 5);

    gate.let_go(8);
    within(broker.idle("orders")).await;
    within(broker.idle("invoices")).await;
    assert_eq!(begun.len(), 10);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_spreads_calls_and_a_batch_is_one() {
    let (broker, calls) = (MemoryBroker::new(), Record::default());
    let running = start(broker.clone(), |scope| {
        let limit = ServiceBuilder::new().rate_limit(2, Duration::from_secs(1));
        scope.layer(Tower::new(limit), |scope| {
            let calls = calls.clone();
            let noted = batch_handler("orders", move |given| {
                calls.add((given.len(), Instant::now()));
                async {}
            });
            scope.include(noted).batch(2).batch_age(Duration::ZERO);
        });
    })
    .await;

    publish_ids(&broker, "orders", 0..10).await;

    let calls = calls.reaches(5).await;
    let messages: usize = calls.iter().map(|(messages, _)| messages).sum();
    assert_eq!(messages, 10);
    let took = calls[4].1 - calls[0].1;
    assert!((2000..2100).contains(&took.as_millis()), "{took:?}");
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_stack_are_failures_that_the_policy_can_tell_apart() {
    let (broker, gate, begun) = (MemoryBroker::new(), Gate::closed(), Record::default());
    let running = start(broker.clone(), |scope| {
        let stack = ServiceBuilder::new()
            .load_shed()
            .concurrency_limit(1)
            .timeout(Duration::from_secs(5));
        scope.layer(Tower::new(stack), |scope| {
            let (gate, begun) = (gate.clone(), begun.clone());
            let held = handler("orders", move |given| {
                let (gate, begun) = (gate.clone(), begun.clone());
                async move {
                    begun.add((given.id(), given.attempt));
                    gate.pass().await;
                }
            });
            scope
                .include(held)
                .workers(2)
                .retry_when(|error: &BoxError| error.is::<Overloaded>().then(|| Retry::fixed(Duration::from_mins(1))))
                .retry_when(|error: &BoxError| error.is::<Elapsed>().then(Retry::never));
        });
    })
    .await;

    publish_ids(&broker, "orders", [1]).await;
    begun.reaches(1).await;
    publish_ids(&broker, "orders", [2]).await;

    // The second is shed while the first is held, whose time is up after 5 s; then it is alone.
    assert_eq!(begun.reaches(2).await, [(1, 1), (2, 2)]);
    let dead = broker.dead_letters("orders");
    assert_eq!((dead.len(), &dead[0].payload[..]), (1, &b"1"[..]));
    assert!(dead[0].letter.error.contains("timed out"), "{}", dead[0].letter.error);
    gate.let_go(1);
    within(broker.idle("orders")).await;
    assert_eq!(broker.dead_letters("orders").len(), 1);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_handlers_say_holds_and_an_answer_in_their_place_is_a_failure() {
    let (broker, called) = (MemoryBroker::new(), Record::default());
    let running = start(broker.clone(), |scope| {
        // Answers itself what comes on `astray`, and says of every other call that it failed.
        let stack = tower::layer::layer_fn(|inner: HandlerService| {
            tower::service_fn(move |call: HandlerCall| async move {
                if call.source() == "astray" {
                    return Ok(());
                }
                inner.oneshot(call).await?;
                Err(BoxError::from("too late to say so"))
            })
        });
        scope.layer(Tower::new(stack), |scope| {
            for name in ["astray", "orders"] {
                let called = called.clone();
                let noted = handler(name, move |given| {
                    called.add(given.text);
                    async {}
                });
                scope.include(noted).retry(Retry::never());
            }
        });
    })
    .await;

    publish_ids(&broker, "astray", [1]).await;
    publish_ids(&broker, "orders", [2]).await;
    within(broker.idle("astray")).await;
    within(broker.idle("orders")).await;

    assert_eq!(called.all(), ["2"]);
    assert!(broker.dead_letters("orders").is_empty());
    let dead = broker.dead_letters("astray");
    assert!(dead[0].letter.error.contains("in the place of the handler"), "{dead:?}");
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_by_its_time_out_keeps_no_permit() {
    let (broker, gate, begun) = (MemoryBroker::new(), Gate::closed(), Record::default());
    let running = start(broker.clone(), |scope| {
        scope.layer(Tower::new(ServiceBuilder::new().concurrency_limit(1)), |scope| {
            let (gate, begun) = (gate.clone(), begun.clone());
            let held = handler("orders", move |given| {
                let (gate, begun) = (gate.clone(), begun.clone());
                async move {
                    begun.add(given.id());
                    gate.pass().await;
                }
            });
            scope
                .include(held)
                .workers(2)
                .timeout(Duration::from_secs(5))
                .retry(Retry::never());
        });
    })
    .await;

    // The first has the only permit and hangs; the second waits for it. Each has its own 5 s, waiting included.
    publish_ids(&broker, "orders", [1]).await;
    begun.reaches(1).await;
    publish_ids(&broker, "orders", [2, 3]).await;
    within(broker.idle("orders")).await;

    let dead = broker.dead_letters("orders");
    assert!(dead.iter().all(|one| one.letter.error.contains("time-out")), "{dead:?}");
    // Those that come afterwards find it free: neither the call that had it nor those that waited have kept it.
    gate.let_go(2);
    let before = begun.len();
    publish_ids(&broker, "orders", [4, 5]).await;
    begun.reaches(before + 2).await;
    within(broker.idle("orders")).await;
    assert_eq!(broker.dead_letters("orders").len(), dead.len());
    running.shutdown().await.unwrap();
}

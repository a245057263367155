//! How often a message is tried, after which error, and how long is waited in between.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::time::Duration;

use common::{Gate, Record, Reduced, handler, health, publish_ids, start, within};
use ruststream::handler::HandlerOutcome;
use ruststream::memory::MemoryBroker;
use ruststream::policy::{Backoff, OrderBy, Retry};
use ruststream::transport::{Capabilities, DeadReason};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// A handler that notes each attempt with its time and always fails.
fn failing(
    tried: &Record<(u32, u64)>,
) -> common::FromClosure<impl Fn(common::Given) -> std::future::Ready<Result<(), String>> + Send + Sync + 'static> {
    let (tried, begun) = (tried.clone(), Instant::now());
    handler("orders", move |given| {
        tried.add((given.attempt, begun.elapsed().as_secs()));
        std::future::ready(Err(format!("attempt {} failed", given.attempt)))
    })
}

#[tokio::test(start_paused = true)]
async fn five_attempts_with_jittered_backoff_where_nothing_is_set() {
    let (broker, tried) = (MemoryBroker::new(), Record::default());
    let running = start(broker.clone(), |scope| {
        scope.include(failing(&tried));
    })
    .await;

    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;

    let attempts: Vec<_> = tried.all().into_iter().map(|(attempt, _)| attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    // Full jitter: no wait is longer than 1 s * 2^(n - 1).
    for (pair, longest) in tried.all().windows(2).zip([1, 2, 4, 8]) {
        assert!(pair[1].1 - pair[0].1 <= longest, "{:?}", tried.all());
    }
    let dead = &broker.dead_letters("orders")[0].letter;
    assert_eq!((dead.attempts, &dead.error[..]), (5, "attempt 5 failed"));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fixed_wait_is_the_same_after_each_attempt() {
    let (broker, tried) = (MemoryBroker::new(), Record::default());
    let running = start(broker.clone(), |scope| {
        scope
            .include(failing(&tried))
            .retry(Retry::fixed(10 * SECOND).attempts(4));
    })
    .await;

    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;

    assert_eq!(tried.all(), [(1, 0), (2, 10), (3, 20), (4, 30)]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cap_bounds_the_wait() {
    let (broker, tried) = (MemoryBroker::new(), Record::default());
    let own = Backoff::own(|attempt| Duration::from_secs(u64::from(attempt) * 100)).cap(150 * SECOND);
    let running = start(broker.clone(), |scope| {
        scope
            .include(failing(&tried))
            .retry(Retry::with_backoff(own).attempts(4));
    })
    .await;

    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;

    assert_eq!(tried.all(), [(1, 0), (2, 100), (3, 250), (4, 400)]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn never_means_one_attempt() {
    let (broker, tried) = (MemoryBroker::new(), Record::default());
    let running = start(broker.clone(), |scope| {
        scope.include(failing(&tried)).retry(Retry::never());
    })
    .await;

    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;

    assert_eq!(tried.all(), [(1, 0)]);
    assert_eq!(broker.dead_letters("orders")[0].letter.attempts, 1);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn forever_means_without_end() {
    let (broker, tried) = (MemoryBroker::new(), Record::default());
    let running = start(broker.clone(), |scope| {
        scope.include(failing(&tried)).retry(Retry::fixed(SECOND).forever());
    })
    .await;

    publish_ids(&broker, "orders", [1]).await;
    tried.reaches(1_000).await;

    assert_eq!(broker.held("orders"), 1);
    assert!(broker.dead_letters("orders").is_empty());
    running.shutdown().await.unwrap();
}

#[derive(Debug)]
enum Declined {
    Gone,
    Busy,
}

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "declined: {self:?}")
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_hold_for_one_type_of_error_and_for_some_of_its_values() {
    let (broker, tried) = (MemoryBroker::new(), Record::<(u64, u32)>::default());
    let running = start(broker.clone(), |scope| {
        let by_type = tried.clone();
        scope
            .include(handler("by-type", move |given| {
                by_type.add((given.id(), given.attempt));
                std::future::ready(Err::<(), _>(Declined::Busy))
            }))
            .retry(Retry::fixed(SECOND).attempts(4))
            .retry_on::<String>(Retry::never())
            .retry_on::<Declined>(Retry::fixed(SECOND).attempts(2));
        let by_value = tried.clone();
        scope
            .include(handler("by-value", move |given| {
                by_value.add((given.id(), given.attempt));
                let why = if given.id() == 1 {
                    Declined::Gone
                } else {
                    Declined::Busy
                };
                std::future::ready(Err::<(), _>(why))
            }))
            .retry(Retry::fixed(SECOND).attempts(3))
            .retry_when(|error: &Declined| matches!(error, Declined::Gone).then(Retry::never));
    })
    .await;

    publish_ids(&broker, "by-type", [0]).await;
    within(broker.idle("by-type")).await;
    assert_eq!(tried.all(), [(0, 1), (0, 2)]);

    publish_ids(&broker, "by-value", [1, 2]).await;
    within(broker.idle("by-value")).await;
    assert_eq!(tried.all()[2..], [(1, 1), (2, 1), (2, 2), (2, 3)]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_outcome_retry_is_bounded_by_the_policy_too() {
    for outcome in [HandlerOutcome::retry(), HandlerOutcome::retry_after(5 * SECOND)] {
        let (broker, tried) = (MemoryBroker::new(), Record::<u32>::default());
        let running = start(broker.clone(), |scope| {
            let tried = tried.clone();
            scope
                .include(handler("orders", move |given| {
                    tried.add(given.attempt);
                    std::future::ready(outcome.clone())
                }))
                .retry(Retry::fixed(SECOND).attempts(3));
        })
        .await;

        publish_ids(&broker, "orders", [1]).await;
        within(broker.idle("orders")).await;

        assert_eq!(tried.all(), [1, 2, 3]);
        let dead = &broker.dead_letters("orders")[0].letter;
        assert_eq!((dead.reason, dead.attempts), (DeadReason::AttemptsExhausted, 3));
        running.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_over_restarts_of_the_app() {
    let (broker, tried) = (MemoryBroker::new(), Record::default());
    publish_ids(&broker, "orders", [1]).await;

    for runs_until in [1, 3, 4] {
        let running = start(broker.clone(), |scope| {
            scope
                .include(failing(&tried))
                .retry(Retry::fixed(10 * SECOND).attempts(4));
        })
        .await;
        tried.reaches(runs_until).await;
        running.shutdown().await.unwrap();
    }

    let attempts: Vec<_> = tried.all().into_iter().map(|(attempt, _)| attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    let dead = broker.dead_letters("orders");
    assert_eq!((dead.len(), dead[0].letter.attempts, broker.held("orders")), (1, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_kept_by_the_broker_and_holds_through_a_restart() {
    let (broker, tried) = (MemoryBroker::new(), Record::default());
    let first = start(broker.clone(), |scope| {
        scope.include(failing(&tried)).retry(Retry::fixed(60 * SECOND));
    })
    .await;
    publish_ids(&broker, "orders", [1]).await;
    tried.reaches(1).await;
    first.shutdown().await.unwrap();
    assert_eq!(broker.published("orders")[0].attempts, 1);

    let begun = Instant::now();
    let second = start(broker.clone(), |scope| {
        scope
            .include(failing(&tried))
            .retry(Retry::fixed(60 * SECOND).attempts(2));
    })
    .await;
    within(broker.idle("orders")).await;

    assert_eq!((begun.elapsed().as_secs(), tried.all()[1].0), (60, 2));
    second.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_delays_of_the_broker_the_message_is_kept_unsettled_and_other_work_goes_on() {
    let (broker, tried) = (MemoryBroker::new(), Record::<(u64, u32, u64)>::default());
    let reduced = Reduced::new(&broker, Capabilities::none());
    let begun = Instant::now();
    let running = start(reduced.clone(), |scope| {
        let tried = tried.clone();
        scope
            .include(handler("orders", move |given| {
                tried.add((given.id(), given.attempt, begun.elapsed().as_secs()));
                let result = if given.id() == 1 { Err("no") } else { Ok(()) };
                std::future::ready(result)
            }))
            .retry(Retry::fixed(10 * SECOND).attempts(3));
    })
    .await;

    publish_ids(&broker, "orders", [1, 2]).await;
    tried.reaches(2).await;
    // In hand all the time: a crash now would deliver it again.
    assert_eq!((broker.held("orders"), broker.published("orders").len()), (1, 0));
    tokio::time::sleep(SECOND).await;
    publish_ids(&broker, "orders", [3]).await;
    within(broker.idle("orders")).await;

    assert_eq!(tried.all(), [(1, 1, 0), (2, 1, 0), (3, 1, 1), (1, 2, 10), (1, 3, 20)]);
    assert!(reduced.beyond().is_empty(), "{:?}", reduced.beyond());
    let dead = broker.published("orders.dead");
    assert_eq!(dead[0].headers.get_str("dead-letter-attempts"), Some("3"));
    assert_eq!(health(&running).in_hand, 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retry_kept_in_hand_is_given_back_at_a_shutdown_with_its_attempt() {
    let (broker, tried) = (MemoryBroker::new(), Record::default());
    let reduced = Reduced::new(&broker, Capabilities::none());
    let running = start(reduced.clone(), |scope| {
        scope.include(failing(&tried)).retry(Retry::fixed(3_600 * SECOND));
    })
    .await;
    publish_ids(&broker, "orders", [1]).await;
    tried.reaches(1).await;

    let begun = Instant::now();
    running.shutdown().await.unwrap();

    assert_eq!(begun.elapsed(), Duration::ZERO);
    let standing = broker.published("orders");
    assert_eq!((standing.len(), standing[0].attempts), (1, 1));
    assert!(reduced.beyond().is_empty(), "{:?}", reduced.beyond());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_fails_while_the_app_drains_keeps_its_delay() {
    for ordered in [false, true] {
        let (broker, gate, tried) = (MemoryBroker::new(), Gate::closed(), Record::<u32>::default());
        let running = start(broker.clone(), |scope| {
            let (gate, tried) = (gate.clone(), tried.clone());
            let orders = scope.include(handler("orders", move |given| {
                let (gate, tried) = (gate.clone(), tried.clone());
                async move {
                    tried.add(given.attempt);
                    gate.pass().await;
                    Err::<(), _>("no")
                }
            }));
            orders.retry(Retry::fixed(60 * SECOND));
            if ordered {
                orders.ordered_by(OrderBy::key());
            }
        })
        .await;
        publish_ids(&broker, "orders", [1]).await;
        tried.reaches(1).await;

        running.stop();
        tokio::task::yield_now().await;
        gate.let_go(1);
        running.shutdown().await.unwrap();

        // It stands, but not yet for the next app.
        assert_eq!(broker.published("orders")[0].attempts, 1);
        let begun = Instant::now();
        let next = start(broker.clone(), |scope| {
            scope.include(handler("orders", |_| std::future::ready(())));
        })
        .await;
        within(broker.idle("orders")).await;
        assert_eq!(begun.elapsed().as_secs(), 60, "ordered: {ordered}");
        next.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_there_is_can_be_asked_for() {
    for ordered in [false, true] {
        let (broker, tried) = (MemoryBroker::new(), Record::<u64>::default());
        let running = start(broker.clone(), |scope| {
            let tried = tried.clone();
            let orders = scope.include(handler("orders", move |given| {
                tried.add(given.id());
                std::future::ready(match given.id() {
                    1 => HandlerOutcome::retry_after(Duration::MAX),
                    _ => HandlerOutcome::ack(),
                })
            }));
            if ordered {
                orders.ordered_by(OrderBy::key());
            }
        })
        .await;

        publish_ids(&broker, "orders", [1, 2]).await;
        tried.reaches(2).await;
        tokio::time::sleep(SECOND).await;

        assert_eq!(
            (broker.held("orders"), broker.counts("orders").acked),
            (1, 1),
            "ordered: {ordered}"
        );
        assert_eq!(health(&running).workers, 1);
        running.shutdown().await.unwrap();

        // It waits on, through a restart too.
        let delivered = broker.counts("orders").delivered;
        let next = start(broker.clone(), |scope| {
            scope.include(handler("orders", |_| std::future::ready(())));
        })
        .await;
        tokio::time::sleep(SECOND).await;
        assert_eq!(
            (broker.held("orders"), broker.counts("orders").delivered),
            (1, delivered),
            "ordered: {ordered}"
        );
        next.shutdown().await.unwrap();
    }
}

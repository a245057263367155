//! What an app says of itself, while its transport fails and works again.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::future::ready;

use common::{Fault, Gate, Half, Record, Reduced, handler, health, publish_ids, start, within};
use ruststream::app::{Running, SubscriptionState};
use ruststream::memory::Operation;
use ruststream::prelude::*;
use ruststream::transport::{Capabilities, ErrorKind};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// Waits until the only subscription is in this state.
async fn reaches(running: &Running, state: SubscriptionState) {
    within(async {
        while health(running).state != state {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_subscription_is_told_with_its_broker_and_its_counts() {
    let broker = MemoryBroker::new();
    let running = RustStream::new(AppInfo::new("test", "1.0.0"))
        .with_broker(broker.clone(), |scope| {
            scope.include(handler("orders", |_| ready(()))).workers(3);
            scope
                .include(handler("payments", |_| ready(Err::<(), _>("no"))))
                .retry(Retry::never());
        })
        .with_broker(Reduced::new(&broker, Capabilities::none()), |scope| {
            scope.include(handler("mails", |_| ready(HandlerOutcome::drop())));
        })
        .start()
        .await
        .unwrap();
    for name in ["orders", "payments", "mails"] {
        publish_ids(&broker, name, 0..2).await;
        within(broker.idle(name)).await;
    }
    tokio::time::sleep(SECOND).await;

    let health = running.health();
    let told: Vec<_> = health
        .subscriptions
        .iter()
        .map(|one| {
            let counts = [
                one.acked,
                one.failed,
                one.dead_lettered,
                one.dropped,
                one.in_hand,
                one.stale,
            ];
            (&one.name[..], &one.broker[..], one.state, one.workers, counts)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("orders", "memory", SubscriptionState::Running, 3, [2, 0, 0, 0, 0, 0]),
            ("payments", "memory", SubscriptionState::Running, 1, [0, 2, 2, 0, 0, 0]),
            ("mails", "reduced", SubscriptionState::Running, 1, [0, 0, 0, 2, 0, 0]),
        ]
    );
    assert!(health.is_ready());
    assert_eq!(health.subscription("payments").unwrap().dead_lettered, 2);
    assert!(health.subscription("nothing").is_none());

    let handle = running.handle();
    running.shutdown().await.unwrap();
    let states: Vec<_> = handle
        .health()
        .subscriptions
        .iter()
        .map(|one| (one.state, one.workers))
        .collect();
    assert_eq!(states, [(SubscriptionState::Stopped, 0); 3]);
    assert!(!handle.health().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_failing_fetch_is_tried_with_backoff_told_with_its_reason_and_recovers() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| ready(())));
    })
    .await;
    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;

    // When the broker is away for ten minutes.
    broker.set_down(true);
    let calls = broker.counts("orders").fetch_calls;
    tokio::time::sleep(600 * SECOND).await;

    // Then it is not called without pause, and health tells why.
    let tried = broker.counts("orders").fetch_calls - calls;
    assert!((120..=300).contains(&tried), "{tried} calls in 600 s");
    let troubled = health(&running);
    assert_eq!(troubled.state, SubscriptionState::Degraded);
    assert!(troubled.reason.unwrap().contains("fails this call"));
    assert!(!running.health().is_ready());

    // Then it recovers by itself, within the longest wait.
    broker.set_down(false);
    publish_ids(&broker, "orders", [2]).await;
    let begun = Instant::now();
    within(broker.idle("orders")).await;
    assert!(begun.elapsed() <= 5 * SECOND);
    tokio::time::sleep(SECOND).await;
    let mended = health(&running);
    assert_eq!(
        (mended.state, mended.reason, mended.since),
        (SubscriptionState::Running, None, None)
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn trouble_is_one_trouble_until_the_transport_works_again() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| ready(())));
    })
    .await;
    tokio::time::sleep(SECOND).await;
    broker.set_down(true);
    reaches(&running, SubscriptionState::Degraded).await;
    let since = health(&running).since.unwrap();

    // Asked at any time of the outage, it is degraded since its begin.
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(97)).await;
        let health = health(&running);
        assert_eq!((health.state, health.since), (SubscriptionState::Degraded, Some(since)));
    }

    // An idle subscription is well again without a message to prove it.
    broker.set_down(false);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(health(&running).state, SubscriptionState::Running);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_new_trouble_begins_with_a_short_wait_again() {
    let broker = MemoryBroker::new();
    let reduced = Reduced::new(&broker, Capabilities::none());
    let running = start(reduced.clone(), |scope| {
        scope.include(handler("orders", |_| ready(())));
    })
    .await;
    tokio::time::sleep(SECOND).await;
    broker.set_down(true);
    tokio::time::sleep(100 * SECOND).await;
    broker.set_down(false);
    tokio::time::sleep(100 * SECOND).await;

    let cut_at = Instant::now();
    broker.cut();
    tokio::time::sleep(100 * SECOND).await;

    let again = *reduced.fetched_at().iter().find(|at| **at > cut_at).unwrap();
    assert!(again - cut_at <= Duration::from_millis(100), "{:?}", again - cut_at);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_recovery_that_fails_is_tried_with_backoff_too() {
    let broker = MemoryBroker::new();
    let reduced = Reduced::new(&broker, Capabilities::none());
    let running = start(reduced.clone(), |scope| {
        scope.include(handler("orders", |_| ready(())));
    })
    .await;
    tokio::time::sleep(SECOND).await;
    let before = reduced.fetched_at().len();

    reduced.next(Half::Recover, [Fault::Fail(ErrorKind::Timeout); 20]);
    broker.cut();
    tokio::time::sleep(10 * SECOND).await;
    let troubled = health(&running);
    assert_eq!(
        (troubled.state, &troubled.reason.unwrap()[..]),
        (SubscriptionState::Degraded, "Recover fails as Timeout")
    );
    assert_eq!(reduced.fetched_at().len(), before);

    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn receipts_are_kept_while_they_cannot_be_settled_and_are_settled_later() {
    let (broker, handled) = (MemoryBroker::new(), Record::<u64>::default());
    let running = {
        let handled = handled.clone();
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    handled.add(given.id());
                    ready(())
                }))
                .prefetch(50);
        })
        .await
    };
    broker.fail_next(Operation::Settle, usize::MAX, ErrorKind::Busy);
    publish_ids(&broker, "orders", 0..500).await;
    tokio::time::sleep(300 * SECOND).await;

    // Bounded by what may be in hand, tried with backoff, and told.
    assert_eq!((handled.len(), health(&running).in_hand), (50, 50));
    assert_eq!(health(&running).state, SubscriptionState::Degraded);
    assert!(
        broker.counts("orders").settle_calls < 150,
        "{}",
        broker.counts("orders").settle_calls
    );

    broker.fail_next(Operation::Settle, 0, ErrorKind::Busy);
    within(broker.idle("orders")).await;
    assert_eq!(
        (
            handled.len(),
            broker.counts("orders").acked,
            broker.counts("orders").stale
        ),
        (500, 500, 0)
    );
    reaches(&running, SubscriptionState::Running).await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_ever_be_settled_is_given_up_and_the_rest_goes_on() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| ready(())));
    })
    .await;
    broker.fail_next(Operation::Settle, 1, ErrorKind::Denied);
    publish_ids(&broker, "orders", [1]).await;
    tokio::time::sleep(SECOND).await;
    publish_ids(&broker, "orders", [2]).await;
    within(broker.settled("orders", 1)).await;

    assert_eq!(
        (broker.held("orders"), health(&running).in_hand, health(&running).stale),
        (1, 0, 1)
    );
    running.shutdown().await.unwrap();
    assert_eq!(broker.published("orders").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cut_link_delivers_again_and_old_receipts_are_counted() {
    let (broker, gate, seen) = (MemoryBroker::new(), Gate::closed(), Record::<(u64, u32)>::default());
    let running = {
        let (gate, seen) = (gate.clone(), seen.clone());
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    seen.add((given.id(), given.attempt));
                    let gate = gate.clone();
                    async move { gate.pass().await }
                }))
                .workers(10);
        })
        .await
    };
    publish_ids(&broker, "orders", 0..10).await;
    seen.reaches(10).await;

    broker.cut();
    gate.let_go(100);
    within(broker.idle("orders")).await;

    let counts = broker.counts("orders");
    assert_eq!((counts.acked, counts.stale, counts.delivered), (10, 10, 20));
    assert_eq!((health(&running).stale, health(&running).in_hand), (10, 0));
    let mut again = seen.all()[10..].to_vec();
    again.sort_unstable();
    assert_eq!(again, (0..10).map(|id| (id, 2)).collect::<Vec<_>>());
    reaches(&running, SubscriptionState::Running).await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_fails_its_subscription_and_no_other() {
    let (broker, other) = (MemoryBroker::new(), MemoryBroker::new());
    let reduced = Reduced::new(&broker, Capabilities::none());
    let running = RustStream::new(AppInfo::new("test", "1.0.0"))
        .with_broker(reduced.clone(), |scope| {
            scope.include(handler("orders", |_| ready(())));
        })
        .with_broker(other.clone(), |scope| {
            scope.include(handler("payments", |_| ready(())));
        })
        .start()
        .await
        .unwrap();
    tokio::time::sleep(SECOND).await;

    reduced.next(Half::Fetch, [Fault::Fail(ErrorKind::Denied)]);
    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;
    publish_ids(&broker, "orders", [2]).await;
    publish_ids(&other, "payments", [3]).await;
    within(other.idle("payments")).await;

    assert_eq!(broker.held("orders"), 1);
    let health = running.health();
    let failed = health.subscription("orders").unwrap();
    assert_eq!(
        (failed.state, failed.reason.as_deref()),
        (SubscriptionState::Failed, Some("Fetch fails as Denied"))
    );
    assert_eq!(
        health.subscription("payments").unwrap().state,
        SubscriptionState::Running
    );
    assert!(!health.is_ready());

    // It runs on, and says at its end that something failed.
    let handle = running.handle();
    let finished = tokio::spawn(running.finished());
    tokio::time::sleep(100 * SECOND).await;
    assert!(!finished.is_finished());
    handle.stop();
    let error = within(finished).await.unwrap().unwrap_err();
    assert!(error.is_broker());
    assert!(error.to_string().contains("`orders` on reduced"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_app_whose_every_subscription_failed_is_finished() {
    let broker = MemoryBroker::new();
    let reduced = Reduced::new(&broker, Capabilities::none());
    let running = start(reduced.clone(), |scope| {
        scope.include(handler("orders", |_| ready(())));
        scope.include(handler("payments", |_| ready(())));
    })
    .await;
    tokio::time::sleep(SECOND).await;

    reduced.next(Half::Fetch, [Fault::Fail(ErrorKind::Incompatible); 2]);
    broker.cut();
    let error = within(running.finished()).await.unwrap_err();

    assert!(error.to_string().contains("has failed for good"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_hoards_nothing() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope
            .include(handler("orders", |_| tokio::time::sleep(SECOND)))
            .workers(4);
    })
    .await;

    publish_ids(&broker, "orders", 0..1_000).await;
    tokio::time::sleep(20 * SECOND + Duration::from_millis(500)).await;

    let in_hand = health(&running).in_hand;
    assert!(in_hand <= 5, "{in_hand} in hand of four workers");
    assert!(broker.published("orders").len() > 900);
    drop(running);
}

#[tokio::test]
async fn a_busy_subscription_settles_and_fetches_in_groups() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| ready(())));
    })
    .await;

    publish_ids(&broker, "orders", 0..10_000).await;
    within(broker.idle("orders")).await;

    let counts = broker.counts("orders");
    assert!(counts.settle_calls < 1_000, "{} settle calls", counts.settle_calls);
    assert!(counts.fetch_calls < 1_000, "{} fetch calls", counts.fetch_calls);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_idle_subscription_adds_no_wait() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| ready(()))).workers(4);
    })
    .await;
    tokio::time::sleep(SECOND).await;

    for id in 0..100 {
        let begun = Instant::now();
        publish_ids(&broker, "orders", [id]).await;
        within(broker.idle("orders")).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tokio::time::sleep(SECOND).await;
    }

    // Nothing is asked without need either: one fetch and one settle a message.
    let counts = broker.counts("orders");
    assert!(counts.fetch_calls <= 102 && counts.settle_calls <= 100, "{counts:?}");
    running.shutdown().await.unwrap();
}

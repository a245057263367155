//! Leases: a healthy handler keeps its message however long it takes, a lost lease is noticed and harmless.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::future::pending;

use common::{Gate, Given, Record, handler, health, publish_ids, publish_keyed, start, within};
use ruststream::app::{Running, SubscriptionState};
use ruststream::memory::{Operation, Queue};
use ruststream::prelude::*;
use ruststream::transport::ErrorKind;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(3);

async fn node<F, Fut>(broker: &MemoryBroker, workers: usize, run: F) -> Running
where
    F: Fn(Given) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: ruststream::handler::IntoOutcome + Send,
{
    start(broker.clone(), |scope| {
        scope
            .include(handler("orders", run))
            .workers(workers)
            .source(Queue::new("orders").lease(LEASE));
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_long_handler_runs_once_while_its_lease_is_renewed() {
    // C03: lease 3 s, handler 12 s, two nodes, 20 messages.
    let (broker, runs) = (MemoryBroker::new(), Record::<(u64, u32)>::default());
    let run = |runs: &Record<(u64, u32)>| {
        let runs = runs.clone();
        move |given: Given| {
            runs.add((given.id(), given.attempt));
            async move {
                tokio::time::sleep(4 * LEASE).await;
                assert!(!given.token.is_cancelled());
            }
        }
    };
    let a = node(&broker, 4, run(&runs)).await;
    let b = node(&broker, 4, run(&runs)).await;

    publish_ids(&broker, "orders", 0..20).await;
    within(broker.idle("orders")).await;

    let mut ran = runs.all();
    ran.sort_unstable();
    assert_eq!(ran, (0..20).map(|id| (id, 1)).collect::<Vec<_>>());
    let counts = broker.counts("orders");
    assert_eq!((counts.acked, counts.stale, counts.dead), (20, 0, 0));
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_hand_for_its_turn_keeps_its_lease_too() {
    let (broker, runs) = (MemoryBroker::new(), Record::<u64>::default());
    let noted = runs.clone();
    let running = start(broker.clone(), |scope| {
        scope
            .include(handler("orders", move |given| {
                noted.add(given.id());
                tokio::time::sleep(2 * LEASE)
            }))
            .prefetch(10)
            .source(Queue::new("orders").lease(LEASE));
    })
    .await;

    publish_ids(&broker, "orders", 0..10).await;
    within(broker.idle("orders")).await;

    assert_eq!(runs.all(), (0..10).collect::<Vec<_>>());
    assert_eq!(health(&running).stale, 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retry_kept_in_hand_keeps_its_lease_too() {
    let (broker, runs) = (MemoryBroker::new(), Record::<u32>::default());
    let noted = runs.clone();
    let running = start(broker.clone(), |scope| {
        scope
            .include(handler("orders", move |given| {
                noted.add(given.attempt);
                std::future::ready(if given.attempt == 1 { Err("once") } else { Ok(()) })
            }))
            .retry(Retry::fixed(10 * LEASE))
            .ordered_by(OrderBy::key())
            .source(Queue::new("orders").lease(LEASE));
    })
    .await;

    publish_keyed(&broker, "orders", "k", "1").await;
    within(broker.idle("orders")).await;

    assert_eq!((runs.all(), broker.counts("orders").delivered), (vec![1, 2], 1));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_cancels_the_token_and_the_late_ack_is_counted_and_harmless() {
    // Given a message in the hand of a node that cannot renew.
    let (broker, gate, tokens) = (
        MemoryBroker::new(),
        Gate::closed(),
        Record::<CancellationToken>::default(),
    );
    let a = {
        let (gate, tokens) = (gate.clone(), tokens.clone());
        node(&broker, 1, move |given| {
            let gate = gate.clone();
            tokens.add(given.token);
            async move { gate.pass().await }
        })
        .await
    };
    publish_ids(&broker, "orders", [1]).await;
    let token = tokens.reaches(1).await.remove(0);
    a.pause("orders");
    broker.fail_next(Operation::Renew, usize::MAX, ErrorKind::Unavailable);
    let attempts = Record::<u32>::default();
    let b = {
        let attempts = attempts.clone();
        start(broker.clone(), |scope| {
            scope.include(handler("orders", move |given| {
                attempts.add(given.attempt);
                std::future::ready(())
            }));
        })
        .await
    };

    // When its lease runs out, another node has the message.
    assert_eq!(attempts.reaches(1).await, [2]);
    within(broker.idle("orders")).await;
    assert_eq!(a.health().subscriptions[0].state, SubscriptionState::Degraded);
    assert!(!token.is_cancelled());

    // Then the token is cancelled as soon as the loss is known, and what the handler says is stale.
    broker.fail_next(Operation::Renew, 0, ErrorKind::Unavailable);
    within(token.cancelled()).await;
    gate.let_go(1);
    within(async {
        while health(&a).stale == 0 {
            tokio::time::sleep(SECOND).await;
        }
    })
    .await;
    let counts = broker.counts("orders");
    assert_eq!((counts.acked, counts.stale, counts.dead), (1, 1, 0));
    assert_eq!((health(&a).stale, health(&a).in_hand), (1, 0));
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_lost_its_lease_before_it_was_begun_is_not_handled_here() {
    let (broker, gate, begun) = (MemoryBroker::new(), Gate::closed(), Record::<u64>::default());
    let running = {
        let (gate, begun) = (gate.clone(), begun.clone());
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    begun.add(given.id());
                    let gate = gate.clone();
                    async move { gate.pass().await }
                }))
                .prefetch(10)
                .source(Queue::new("orders").lease(LEASE));
        })
        .await
    };
    publish_ids(&broker, "orders", 1..=5).await;
    begun.reaches(1).await;
    running.pause("orders");

    // When all leases run out, and then the renewals work again.
    broker.fail_next(Operation::Renew, usize::MAX, ErrorKind::Unavailable);
    tokio::time::sleep(2 * LEASE).await;
    broker.fail_next(Operation::Renew, 0, ErrorKind::Unavailable);
    within(async {
        while health(&running).in_hand > 1 {
            tokio::time::sleep(SECOND).await;
        }
    })
    .await;
    gate.let_go(10);
    tokio::time::sleep(LEASE).await;

    // Then only what had begun is ended here; all five stand for the next who asks.
    assert_eq!(
        (begun.all(), health(&running).stale, health(&running).in_hand),
        (vec![1], 5, 0)
    );
    assert_eq!(broker.published("orders").len(), 5);
    running.resume("orders");
    within(broker.idle("orders")).await;
    assert_eq!(begun.all(), [1, 1, 2, 3, 4, 5]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_time_out_cancels_the_token_drops_the_call_and_is_a_failed_attempt() {
    struct Dropped(Record<&'static str>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.add("dropped");
        }
    }
    let (broker, tokens, dropped) = (
        MemoryBroker::new(),
        Record::<CancellationToken>::default(),
        Record::default(),
    );
    let running = {
        let (tokens, dropped) = (tokens.clone(), dropped.clone());
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    tokens.add(given.token);
                    let guard = Dropped(dropped.clone());
                    async move {
                        let _guard = guard;
                        pending::<()>().await;
                    }
                }))
                .timeout(5 * SECOND)
                .retry(Retry::fixed(SECOND).attempts(2));
        })
        .await
    };
    let begun = Instant::now();

    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;

    assert_eq!(begun.elapsed().as_secs(), 11);
    assert_eq!(dropped.len(), 2);
    assert!(tokens.all().iter().all(CancellationToken::is_cancelled));
    let dead = &broker.dead_letters("orders")[0].letter;
    assert_eq!(
        (&dead.error[..], dead.attempts),
        ("the handler took longer than its time-out of 5s", 2)
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_longest_time_out_there_is_can_be_set() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope
            .include(handler("orders", |_| tokio::time::sleep(100 * SECOND)))
            .timeout(Duration::MAX);
    })
    .await;

    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;

    assert_eq!((broker.counts("orders").acked, health(&running).failed), (1, 0));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_message_has_its_own_time() {
    // Nine of ten seconds each: the time-out counts from the begin of each call.
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope
            .include(handler("orders", |_| tokio::time::sleep(9 * SECOND)))
            .timeout(10 * SECOND);
    })
    .await;

    publish_ids(&broker, "orders", 1..=5).await;
    within(broker.idle("orders")).await;

    assert_eq!((broker.counts("orders").acked, health(&running).failed), (5, 0));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_token_kept_by_a_task_of_its_own_is_not_cancelled_by_later_messages() {
    let (broker, tokens) = (MemoryBroker::new(), Record::<CancellationToken>::default());
    let running = {
        let tokens = tokens.clone();
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    tokens.add(given.token.clone());
                    async move {
                        if given.id() == 2 {
                            pending::<()>().await;
                        }
                    }
                }))
                .timeout(SECOND)
                .retry(Retry::never());
        })
        .await
    };

    publish_ids(&broker, "orders", 1..=3).await;
    within(broker.idle("orders")).await;

    let cancelled: Vec<_> = tokens.all().iter().map(CancellationToken::is_cancelled).collect();
    assert_eq!(cancelled, [false, true, false]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_grace_period_cancels_the_token() {
    let (broker, tokens) = (MemoryBroker::new(), Record::<CancellationToken>::default());
    let running = {
        let tokens = tokens.clone();
        common::app(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    tokens.add(given.token);
                    pending::<()>()
                }))
                .workers(2);
        })
        .shutdown_grace(5 * SECOND)
        .start()
        .await
        .unwrap()
    };
    publish_ids(&broker, "orders", 1..=2).await;
    let tokens = tokens.reaches(2).await;

    running.stop();
    tokio::time::sleep(4 * SECOND).await;
    assert!(!tokens[0].is_cancelled());
    running.shutdown().await.unwrap();
    assert!(tokens.iter().all(CancellationToken::is_cancelled));
}

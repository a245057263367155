//! The life of an app: start, hooks, several brokers, several apps, end.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::error::Error;
use std::future::{pending, ready};

use common::{Gate, Record, Reduced, app, handler, publish_ids, start, within};
use ruststream::app::SubscriptionState;
use ruststream::handler::Subscriber;
use ruststream::memory::{Operation, Queue};
use ruststream::prelude::*;
use ruststream::transport::{Capabilities, ErrorKind};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn orders() -> impl Subscriber<()> {
    handler("orders", |_| ready(()))
}

#[tokio::test(start_paused = true)]
async fn an_absent_broker_is_waited_for_with_backoff() {
    let broker = MemoryBroker::new();
    broker.set_down(true);
    publish_later(&broker);
    let starting = tokio::spawn(
        app(broker.clone(), |scope| {
            scope.include(orders());
        })
        .start(),
    );

    tokio::time::sleep(100 * SECOND).await;
    assert!(!starting.is_finished());
    broker.set_down(false);
    let begun = Instant::now();
    let running = within(starting).await.unwrap().unwrap();

    assert!(begun.elapsed() <= 5 * SECOND, "{:?}", begun.elapsed());
    within(broker.settled("orders", 1)).await;
    running.shutdown().await.unwrap();
}

/// Publishes one order as soon as the broker is there.
fn publish_later(broker: &MemoryBroker) {
    let broker = broker.clone();
    tokio::spawn(async move {
        use ruststream::message::Outgoing;
        use ruststream::transport::Publish;
        while broker
            .publisher()
            .publish(&[Outgoing::new("orders", b"1")])
            .await
            .is_err()
        {
            tokio::time::sleep(SECOND).await;
        }
    });
}

#[tokio::test(start_paused = true)]
async fn an_absent_queue_is_waited_for_too() {
    let broker = MemoryBroker::new();
    broker.fail_next(Operation::Open, 3, ErrorKind::Timeout);
    let begun = Instant::now();

    let running = start(broker.clone(), |scope| {
        scope.include(orders());
    })
    .await;

    assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_app_that_fails_fast_does_not_wait() {
    for operation in [Operation::Connect, Operation::Open] {
        let broker = MemoryBroker::new();
        broker.fail_next(operation, 1, ErrorKind::Unavailable);
        let begun = Instant::now();

        let error = app(broker.clone(), |scope| {
            scope.include(orders());
        })
        .fail_fast()
        .start()
        .await
        .unwrap_err();

        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(error.is_broker());
        assert!(error.to_string().contains("memory"), "{error}");
        assert!(error.source().unwrap().to_string().contains("fails this call"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_refuses_for_good_is_not_waited_for() {
    let broker = MemoryBroker::new();
    broker.fail_next(Operation::Connect, 1, ErrorKind::Denied);
    let error = app(broker, |scope| {
        scope.include(orders());
    })
    .start()
    .await
    .unwrap_err();
    assert!(error.is_broker());
}

#[tokio::test(start_paused = true)]
async fn one_broker_that_refuses_stops_what_the_others_had_started() {
    let (good, bad) = (MemoryBroker::new(), MemoryBroker::new());
    bad.fail_next(Operation::Open, 1, ErrorKind::Denied);
    let error = app(good.clone(), |scope| {
        scope.include(orders());
    })
    .with_broker(bad, |scope| {
        scope.include(orders());
    })
    .start()
    .await
    .unwrap_err();
    assert!(error.to_string().contains("cannot open `orders` on memory"), "{error}");

    publish_ids(&good, "orders", [1]).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(good.published("orders").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_dropped_leaves_nothing_behind() {
    // Given an app of which one broker works and the other is away.
    let (good, away) = (MemoryBroker::new(), MemoryBroker::new());
    away.set_down(true);
    let starting = app(good.clone(), |scope| {
        scope.include(orders());
    })
    .with_broker(away.clone(), |scope| {
        scope.include(orders());
    })
    .start();
    assert!(tokio::time::timeout(10 * SECOND, starting).await.is_err());

    // When the other comes back, nothing takes messages from either.
    away.set_down(false);
    publish_ids(&good, "orders", [1]).await;
    publish_ids(&away, "orders", [1]).await;
    tokio::time::sleep(100 * SECOND).await;

    assert_eq!((good.published("orders").len(), away.published("orders").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_dropped_in_its_last_hook_stops_what_runs() {
    let broker = MemoryBroker::new();
    let starting = app(broker.clone(), |scope| {
        scope.include(orders());
    })
    .after_startup(|_| pending())
    .start();
    assert!(tokio::time::timeout(SECOND, starting).await.is_err());
    tokio::time::sleep(SECOND).await;

    publish_ids(&broker, "orders", [1]).await;
    tokio::time::sleep(SECOND).await;

    assert_eq!(broker.published("orders").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hooks_run_in_order_each_at_its_time() {
    let (broker, log) = (MemoryBroker::new(), Record::<String>::default());
    let note = |text: &'static str| {
        let (log, broker) = (log.clone(), broker.clone());
        move || {
            log.add(format!("{text} {}", broker.counts("orders").fetch_calls > 0));
            ready(())
        }
    };
    macro_rules! plain {
        ($text:literal) => {{
            let note = note($text);
            move || {
                let noted = note();
                async move {
                    noted.await;
                    Ok(())
                }
            }
        }};
    }
    macro_rules! with_handle {
        ($text:literal) => {{
            let note = note($text);
            move |handle: ruststream::app::AppHandle| {
                let noted = note();
                async move {
                    assert_eq!(handle.health().subscriptions.len(), 1);
                    // Everything is connected.
                    handle.publisher().publish("log", $text).await?;
                    noted.await;
                    Ok(())
                }
            }
        }};
    }
    let running = app(broker.clone(), |scope| {
        scope.include(orders());
    })
    .after_shutdown(plain!("after shutdown 1"))
    .on_startup(plain!("on startup 1"))
    .on_startup(plain!("on startup 2"))
    .after_startup(with_handle!("after startup 1"))
    .after_startup(with_handle!("after startup 2"))
    .on_shutdown(with_handle!("on shutdown 1"))
    .on_shutdown(with_handle!("on shutdown 2"))
    .after_shutdown(plain!("after shutdown 2"))
    .start()
    .await
    .unwrap();
    tokio::time::sleep(SECOND).await;
    log.add("running".to_owned());
    running.shutdown().await.unwrap();

    let log: Vec<_> = log.all();
    let steps: Vec<_> = log
        .iter()
        .map(|step| step.trim_end_matches(" true").trim_end_matches(" false"))
        .collect();
    assert_eq!(
        steps,
        [
            "on startup 1",
            "on startup 2",
            "after startup 1",
            "after startup 2",
            "running",
            "on shutdown 1",
            "on shutdown 2",
            "after shutdown 1",
            "after shutdown 2"
        ]
    );
    assert_eq!(log[1], "on startup 2 false");
    assert_eq!(broker.published("log").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_hook_may_fail_with_any_error() {
    fn assert_hook(error: &ruststream::app::AppError, hook: &str, cause: &str) {
        assert!(error.is_hook());
        assert_eq!(error.to_string(), format!("the hook `{hook}` failed"));
        assert_eq!(error.source().unwrap().to_string(), cause);
    }
    let new = || app(MemoryBroker::new(), |_| {});

    let error = new()
        .on_startup(|| ready(Err("a &str".into())))
        .start()
        .await
        .unwrap_err();
    assert_hook(&error, "on_startup", "a &str");
    let error = new()
        .after_startup(|_| ready(Err("a String".to_owned().into())))
        .start()
        .await
        .unwrap_err();
    assert_hook(&error, "after_startup", "a String");
    let boxed = || -> Result<(), Box<dyn Error + Send + Sync>> { Err("a box".into()) };
    let running = new().on_shutdown(move |_| ready(boxed())).start().await.unwrap();
    assert_hook(&running.shutdown().await.unwrap_err(), "on_shutdown", "a box");
    let parse = async || {
        "x".parse::<u8>()?;
        Ok(())
    };
    let running = new().after_shutdown(parse).start().await.unwrap();
    assert_hook(
        &running.shutdown().await.unwrap_err(),
        "after_shutdown",
        "invalid digit found in string",
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_hook_that_fails_ends_the_start_before_anything_is_connected() {
    let (broker, log) = (MemoryBroker::new(), Record::<&str>::default());
    broker.set_down(true);
    let noted = log.clone();
    let error = app(broker, |scope| {
        scope.include(orders());
    })
    .on_startup(|| ready(Err("no".into())))
    .on_startup(move || {
        noted.add("second");
        ready(Ok(()))
    })
    .start()
    .await
    .unwrap_err();
    assert!(error.is_hook() && log.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failing_last_hook_of_the_start_drains_and_runs_the_hooks_of_the_end() {
    let (broker, log) = (MemoryBroker::new(), Record::<&str>::default());
    let (before, after) = (log.clone(), log.clone());
    let error = app(broker.clone(), |scope| {
        scope.include(orders());
    })
    .after_startup(|_| ready(Err("no".into())))
    .on_shutdown(move |_| {
        before.add("on shutdown");
        ready(Ok(()))
    })
    .after_shutdown(move || {
        after.add("after shutdown");
        ready(Ok(()))
    })
    .start()
    .await
    .unwrap_err();

    assert!(error.is_hook());
    assert_eq!(log.all(), ["on shutdown", "after shutdown"]);
    publish_ids(&broker, "orders", [1]).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(broker.published("orders").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failing_hook_of_the_end_keeps_nothing_from_draining() {
    let (broker, gate, begun, log) = (
        MemoryBroker::new(),
        Gate::closed(),
        Record::<u64>::default(),
        Record::default(),
    );
    let noted: Record<&str> = log.clone();
    let running = {
        let (gate, begun) = (gate.clone(), begun.clone());
        app(broker.clone(), |scope| {
            scope.include(handler("orders", move |given| {
                begun.add(given.id());
                let gate = gate.clone();
                async move { gate.pass().await }
            }));
        })
        .on_shutdown(|_| ready(Err("no".into())))
        .after_shutdown(move || {
            noted.add("after");
            ready(Ok(()))
        })
        .start()
        .await
        .unwrap()
    };
    publish_ids(&broker, "orders", [1]).await;
    begun.reaches(1).await;
    gate.let_go(1);

    assert!(running.shutdown().await.unwrap_err().is_hook());

    assert_eq!((broker.counts("orders").acked, log.all()), (1, vec!["after"]));
}

#[tokio::test(start_paused = true)]
async fn several_brokers_work_in_one_app() {
    let (first, second) = (MemoryBroker::new(), MemoryBroker::new());
    let reduced = Reduced::new(&second, Capabilities::none());
    let seen = Record::<String>::default();
    let noting = |name: &'static str, broker: &'static str| {
        let seen = seen.clone();
        handler(name, move |given| {
            seen.add(format!("{broker} {}", given.id()));
            ready(())
        })
    };
    let running = app(first.clone(), |scope| {
        scope.include(noting("orders", "first"));
    })
    .with_broker(reduced, |scope| {
        scope.include(noting("orders", "second"));
    })
    .start()
    .await
    .unwrap();

    publish_ids(&first, "orders", [1]).await;
    publish_ids(&second, "orders", [2]).await;
    within(first.idle("orders")).await;
    within(second.idle("orders")).await;

    let mut seen = seen.all();
    seen.sort();
    assert_eq!(seen, ["first 1", "second 2"]);
    assert_eq!(running.health().subscriptions.len(), 2);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_absent_broker_does_not_keep_another_from_being_found_wrong() {
    let (away, bad) = (MemoryBroker::new(), MemoryBroker::new());
    away.set_down(true);
    bad.fail_next(Operation::Connect, 1, ErrorKind::Denied);
    let starting = app(away, |scope| {
        scope.include(orders());
    })
    .with_broker(bad, |scope| {
        scope.include(orders());
    })
    .start();

    assert!(within(starting).await.unwrap_err().is_broker());
}

#[tokio::test(start_paused = true)]
async fn two_apps_share_a_queue() {
    let (broker, seen) = (MemoryBroker::new(), Record::<(usize, u64)>::default());
    let mut apps = Vec::new();
    for node in 0..2 {
        let seen = seen.clone();
        apps.push(
            start(broker.clone(), |scope| {
                scope.include(handler("orders", move |given| {
                    seen.add((node, given.id()));
                    tokio::time::sleep(SECOND)
                }));
            })
            .await,
        );
    }

    publish_ids(&broker, "orders", 0..20).await;
    within(broker.idle("orders")).await;

    let mut ids: Vec<_> = seen.all().into_iter().map(|(_, id)| id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..20).collect::<Vec<_>>());
    assert!((5..=15).contains(&seen.all().iter().filter(|(node, _)| *node == 0).count()));
    for app in apps {
        app.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_only_one_app_knows_is_never_thrown_away_by_the_other() {
    // C21: A and B share the broker, only B handles `b`; B goes away with a message in hand and comes back.
    let (broker, begun, done) = (MemoryBroker::new(), Record::<u32>::default(), Record::<u32>::default());
    let a = start(broker.clone(), |scope| {
        scope
            .include(handler("a", |_| ready(())))
            .source(Queue::new("a").lease(SECOND));
    })
    .await;
    let b = |gate: Gate| {
        let (begun, done) = (begun.clone(), done.clone());
        app(broker.clone(), |scope| {
            scope
                .include(handler("b", move |given| {
                    begun.add(given.attempt);
                    let (gate, done) = (gate.clone(), done.clone());
                    async move {
                        gate.pass().await;
                        done.add(given.attempt);
                    }
                }))
                .source(Queue::new("b").lease(SECOND));
        })
        .shutdown_grace(Duration::ZERO)
    };
    let first = b(Gate::closed()).start().await.unwrap();
    publish_ids(&broker, "b", [1]).await;
    begun.reaches(1).await;
    first.shutdown().await.unwrap();
    publish_ids(&broker, "a", [1]).await;
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(
        (broker.held("a"), broker.held("b"), broker.dead_letters("b").len()),
        (0, 1, 0)
    );

    let gate = Gate::closed();
    gate.let_go(1);
    let second = b(gate).start().await.unwrap();
    within(broker.idle("b")).await;

    assert_eq!(done.all(), [1]);
    a.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_app_is_finished_when_it_is_told_to_stop() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(orders());
    })
    .await;
    let handle = running.handle();
    let finished = tokio::spawn(running.finished());
    tokio::time::sleep(100 * SECOND).await;
    assert!(!finished.is_finished());

    handle.stop();
    within(finished).await.unwrap().unwrap();

    assert_eq!(handle.health().subscriptions[0].state, SubscriptionState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn an_app_without_subscriptions_runs_until_it_is_told_to_stop() {
    let running = start(MemoryBroker::new(), |_| {}).await;
    let handle = running.handle();
    let finished = tokio::spawn(running.finished());
    tokio::time::sleep(100 * SECOND).await;
    assert!(!finished.is_finished());
    handle.stop();
    within(finished).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_is_a_hook_that_failed_and_the_app_drains() {
    let (broker, gate, begun) = (MemoryBroker::new(), Gate::closed(), Record::<u64>::default());
    let running = {
        let (gate, begun) = (gate.clone(), begun.clone());
        app(broker.clone(), |scope| {
            scope.include(handler("orders", move |given| {
                begun.add(given.id());
                let gate = gate.clone();
                async move { gate.pass().await }
            }));
        })
        .on_shutdown(|_| -> std::future::Ready<HookResult> { panic!("the hook panics") })
        .start()
        .await
        .unwrap()
    };
    publish_ids(&broker, "orders", 1..=2).await;
    begun.reaches(1).await;
    gate.let_go(1);

    let error = running.shutdown().await.unwrap_err();

    assert!(error.is_hook());
    assert_eq!(error.source().unwrap().to_string(), "it panicked: the hook panics");
    assert_eq!(
        (
            broker.counts("orders").acked + broker.published("orders").len() as u64,
            broker.held("orders")
        ),
        (2, 1)
    );
}

//! The ready-made layers.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{Gate, Given, Record, batch_handler, handler, health, publish_ids, publish_with, start, within};
use ruststream::layer::{Claim, ConcurrencyLimit, IdempotencyStore, Idempotent, MemoryIdempotency, OnlyIf, Traced};
use ruststream::message::{HeaderMap, header};
use ruststream::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as Values};
use tracing::{Event, Metadata, Subscriber};

async fn publish_id(broker: &MemoryBroker, name: &str, id: &str, payload: &str) {
    let headers = HeaderMap::from_iter([(header::MESSAGE_ID, id.to_owned())]);
    publish_with(broker, name, payload.as_bytes(), &headers).await;
}

/// How many run, and how many ever ran at a time.
#[derive(Clone, Default)]
struct AtATime(Arc<(AtomicUsize, AtomicUsize)>);

impl AtATime {
    async fn work(self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn one_limit_holds_for_all_handlers_under_it() {
    let (broker, seen) = (MemoryBroker::new(), AtATime::default());
    let running = start(broker.clone(), |scope| {
        scope.layer(ConcurrencyLimit::new(3), |scope| {
            for name in ["a", "b"] {
                let seen = seen.clone();
                scope.include(handler(name, move |_| seen.clone().work())).workers(16);
            }
            let seen = seen.clone();
            scope
                .include(batch_handler("c", move |_| seen.clone().work()))
                .workers(4);
        });
    })
    .await;
    for name in ["a", "b", "c"] {
        publish_ids(&broker, name, 0..50).await;
    }
    for name in ["a", "b", "c"] {
        within(broker.idle(name)).await;
    }

    assert_eq!(seen.most(), 3);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_not_wanted_is_acked_and_counted() {
    let (broker, seen) = (MemoryBroker::new(), Record::default());
    let running = {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope.layer(OnlyIf::header("kind", "order"), |scope| {
                scope.include(handler("mixed", move |given| {
                    seen.add(given.text);
                    async {}
                }));
            });
        })
        .await
    };

    for (kind, payload) in [("order", "1"), ("invoice", "2"), ("orders", "3"), ("order", "4")] {
        publish_with(
            &broker,
            "mixed",
            payload.as_bytes(),
            &HeaderMap::from_iter([("kind", kind)]),
        )
        .await;
    }
    publish_ids(&broker, "mixed", [5]).await;
    within(broker.idle("mixed")).await;

    assert_eq!(seen.all(), ["1", "4"]);
    assert_eq!((health(&running).acked, health(&running).dropped), (2, 3));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_sifted() {
    let (broker, seen) = (MemoryBroker::new(), Record::default());
    publish_ids(&broker, "mixed", 0..10).await;
    let running = {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope.layer(OnlyIf::new(|message| message.payload()[0] % 2 == 0), |scope| {
                let handler = batch_handler("mixed", move |given| {
                    seen.add(given.iter().map(Given::id).collect::<Vec<_>>());
                    async {}
                });
                scope.include(handler).batch(10).prefetch(10);
            });
        })
        .await
    };
    within(broker.idle("mixed")).await;

    assert_eq!(seen.all(), [[0, 2, 4, 6, 8]]);
    assert_eq!((health(&running).acked, health(&running).dropped), (5, 5));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_handled_is_acked_without_a_call() {
    let (broker, seen) = (MemoryBroker::new(), Record::default());
    let running = {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope.layer(Idempotent::new(MemoryIdempotency::new(100)), |scope| {
                for name in ["payments", "others"] {
                    let seen = seen.clone();
                    scope.include(handler(name, move |given| {
                        seen.add((name, given.text));
                        async {}
                    }));
                }
            });
        })
        .await
    };

    for (id, payload) in [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")] {
        publish_id(&broker, "payments", id, payload).await;
    }
    publish_id(&broker, "others", "a", "5").await;
    publish_ids(&broker, "payments", [6, 7]).await;
    within(broker.idle("payments")).await;
    within(broker.idle("others")).await;

    let mut seen = seen.all();
    seen.sort_unstable();
    let expected = [
        ("others", "5"),
        ("payments", "1"),
        ("payments", "3"),
        ("payments", "6"),
        ("payments", "7"),
    ];
    assert_eq!(seen, expected.map(|(name, text)| (name, text.to_owned())));
    assert_eq!(running.health().subscription("payments").unwrap().acked, 6);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_deliveries_of_one_message_never_run_at_the_same_time() {
    let (broker, at_a_time, seen) = (MemoryBroker::new(), AtATime::default(), Record::default());
    let running = {
        let (at_a_time, seen) = (at_a_time.clone(), seen.clone());
        let layer = Idempotent::new(MemoryIdempotency::new(100)).retry_after(Duration::from_millis(4));
        start(broker.clone(), |scope| {
            scope.layer(layer, |scope| {
                scope
                    .include(handler("payments", move |given| {
                        seen.add(given.text);
                        at_a_time.clone().work()
                    }))
                    .workers(8);
            });
        })
        .await
    };

    for payload in ["1", "2", "3"] {
        publish_id(&broker, "payments", "a", payload).await;
    }
    within(broker.idle("payments")).await;

    assert_eq!((seen.all().len(), at_a_time.most()), (1, 1));
    assert_eq!((health(&running).acked, health(&running).dead_lettered), (3, 0));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_failed_may_run_again_however_it_failed() {
    let (broker, seen) = (MemoryBroker::new(), Record::default());
    let running = {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope.layer(Idempotent::new(MemoryIdempotency::new(100)), |scope| {
                let handler = handler("payments", move |given| {
                    seen.add(given.attempt);
                    async move {
                        match given.attempt {
                            1 => return Err("not yet"),
                            2 => panic!("it panics"),
                            3 => std::future::pending().await,
                            4 => return Ok(HandlerOutcome::retry()),
                            _ => {}
                        }
                        Ok(HandlerOutcome::ack())
                    }
                });
                scope
                    .include(handler)
                    .timeout(Duration::from_secs(1))
                    .retry(Retry::fixed(Duration::from_secs(1)).attempts(9));
            });
        })
        .await
    };

    publish_id(&broker, "payments", "a", "1").await;
    within(broker.idle("payments")).await;

    assert_eq!(seen.all(), [1, 2, 3, 4, 5]);
    assert_eq!(health(&running).acked, 1);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_calls_each_message_once() {
    let (broker, seen) = (MemoryBroker::new(), Record::default());
    for (id, payload) in [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")] {
        publish_id(&broker, "payments", id, payload).await;
    }
    let running = {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope.layer(Idempotent::new(MemoryIdempotency::new(100)), |scope| {
                let handler = batch_handler("payments", move |given| {
                    let ids: Vec<_> = given.iter().map(Given::id).collect();
                    let outcomes = given.iter().map(|one| match (one.id(), one.attempt) {
                        (2, 1) => HandlerOutcome::retry(),
                        _ => HandlerOutcome::ack(),
                    });
                    let outcomes: Vec<_> = outcomes.collect();
                    seen.add(ids);
                    async { outcomes }
                });
                scope.include(handler).batch(4).prefetch(4);
            });
        })
        .await
    };
    within(broker.idle("payments")).await;

    let all: Vec<_> = seen.all().concat();
    assert_eq!(seen.all()[0], [1, 2, 4]);
    assert_eq!(all, [1, 2, 4, 2]);
    assert_eq!(health(&running).acked, 4);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_loses_nothing() {
    struct Broken(AtomicUsize);

    impl IdempotencyStore for Broken {
        type Error = String;

        async fn claim(&self, _: &str) -> Result<Claim, String> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Err("the store is away".to_owned()),
                _ => Ok(Claim::Granted),
            }
        }

        async fn complete(&self, _: &str) -> Result<(), String> {
            Err("the store is away again".to_owned())
        }

        async fn forget(&self, _: &str) -> Result<(), String> {
            Ok(())
        }
    }

    let (broker, seen) = (MemoryBroker::new(), Record::default());
    let running = {
        let seen = seen.clone();
        let layer = Idempotent::new(Broken(AtomicUsize::new(0))).key(|_| Some("all".to_owned()));
        start(broker.clone(), |scope| {
            scope.layer(layer, |scope| {
                scope.include(handler("payments", move |given| {
                    seen.add(given.attempt);
                    async {}
                }));
            });
        })
        .await
    };
    publish_ids(&broker, "payments", [1]).await;
    within(broker.idle("payments")).await;

    assert_eq!(seen.all(), [2]);
    assert_eq!((health(&running).acked, health(&running).failed), (1, 1));
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_memory_store_forgets_the_oldest() {
    let store = MemoryIdempotency::new(2);
    for key in ["a", "b", "c"] {
        assert_eq!(store.claim(key).await, Ok(Claim::Granted));
        assert_eq!(store.claim(key).await, Ok(Claim::InProgress));
        store.complete(key).await.unwrap();
    }
    // What is handled is not forgotten by mistake.
    store.forget("c").await.unwrap();

    assert_eq!(store.claim("c").await, Ok(Claim::Done));
    assert_eq!(store.claim("b").await, Ok(Claim::Done));
    assert_eq!(store.claim("a").await, Ok(Claim::Granted));
    store.forget("a").await.unwrap();
    assert_eq!(store.claim("a").await, Ok(Claim::Granted));
}

/// Writes down spans and, for each event, the span that it is in.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    spans: Vec<String>,
    entered: Vec<u64>,
    events_in: Vec<u64>,
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() || metadata.target() == "layers"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Text(&mut text));
        let mut seen = self.0.lock().unwrap();
        seen.spans.push(text);
        Id::from_u64(seen.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Values<'_>) {
        let mut seen = self.0.lock().unwrap();
        let place = span.into_u64() as usize - 1;
        values.record(&mut Text(&mut seen.spans[place]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let mut seen = self.0.lock().unwrap();
        let here = seen.entered.last().copied().unwrap_or_default();
        seen.events_in.push(here);
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let last = self.0.lock().unwrap().entered.pop();
        assert_eq!(last, Some(span.into_u64()));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_logged_in_a_call_is_in_its_span() {
    let (broker, spans, gate) = (MemoryBroker::new(), Spans::default(), Gate::closed());
    let guard = tracing::subscriber::set_default(spans.clone());
    let running = {
        let gate = gate.clone();
        start(broker.clone(), |scope| {
            scope.layer(Traced, |scope| {
                let handler = handler("orders", move |given| {
                    let gate = gate.clone();
                    async move {
                        tracing::info!(target: "layers", "before");
                        gate.pass().await;
                        tracing::info!(target: "layers", "after");
                        if given.attempt == 1 { Err("no") } else { Ok(()) }
                    }
                });
                scope.include(handler).workers(2);
                scope.include(batch_handler("bundles", |_| async {}));
            });
        })
        .await
    };

    publish_id(&broker, "orders", "m-1", "1").await;
    gate.let_go(2);
    within(broker.idle("orders")).await;
    publish_ids(&broker, "bundles", [1, 2]).await;
    within(broker.idle("bundles")).await;
    running.shutdown().await.unwrap();
    drop(guard);

    let seen = spans.0.lock().unwrap();
    assert_eq!(seen.events_in, [1, 1, 2, 2]);
    assert_eq!(
        seen.spans[..2],
        [
            "handle subscription=\"orders\" attempt=1 message_id=\"m-1\" outcome=\"failed\"",
            "handle subscription=\"orders\" attempt=2 message_id=\"m-1\" outcome=\"acked\"",
        ]
    );
    assert!(seen.spans[2].starts_with("handle subscription=\"bundles\" messages="));
}

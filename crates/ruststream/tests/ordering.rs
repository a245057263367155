//! Which messages keep their order, through retries too, and which wait for no other.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::ready;
use std::sync::{Arc, Mutex};

use common::{Gate, Given, Record, handler, publish_ids, publish_keyed, publish_with, start, within};
use ruststream::codec::{Codec, CodecError};
use ruststream::message::{HeaderMap, Incoming, Outgoing};
use ruststream::prelude::*;
use ruststream::transport::Publish;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// C46: a thousand messages, prefetch 50, id 3 fails once.
async fn thousand(workers: usize, ordered: bool) -> Vec<u64> {
    let (broker, seen) = (MemoryBroker::new(), Record::<u64>::default());
    publish_ids(&broker, "orders", 1..=1_000).await;
    let running = start(broker.clone(), |scope| {
        let seen = seen.clone();
        let orders = scope.include(handler("orders", move |given| {
            seen.add(given.id());
            let fails = given.id() == 3 && given.attempt == 1;
            async move {
                tokio::task::yield_now().await;
                if fails { Err("once") } else { Ok(()) }
            }
        }));
        orders.workers(workers).prefetch(50).retry(Retry::fixed(Duration::ZERO));
        if ordered {
            orders.ordered_by(OrderBy::message(|_: &u64| 0u8));
        }
    })
    .await;
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();
    seen.all()
}

#[tokio::test(start_paused = true)]
async fn one_worker_keeps_the_queues_order_and_a_retry_comes_where_the_queue_puts_it() {
    let expected: Vec<_> = (1..=1_000).chain([3]).collect();
    assert_eq!(thousand(1, false).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_key_keeps_its_order_through_a_retry_whatever_the_workers() {
    let expected: Vec<_> = (1..=3).chain(3..=1_000).collect();
    assert_eq!(thousand(8, true).await, expected);
    assert_eq!(thousand(1, true).await, expected);
}

/// What a handler of keyed messages saw: who was handled, and whether two of one key ever were at once.
#[derive(Clone, Default)]
struct Lanes {
    done: Arc<Mutex<HashMap<String, Vec<u64>>>>,
    busy: Arc<Mutex<HashSet<String>>>,
    clashes: Record<String>,
}

impl Lanes {
    async fn handle(self, key: String, given: Given) -> Result<(), String> {
        if !self.busy.lock().unwrap().insert(key.clone()) {
            self.clashes.add(key.clone());
        }
        let id = given.id();
        tokio::time::sleep(Duration::from_millis(id * 7 % 5)).await;
        self.busy.lock().unwrap().remove(&key);
        // Every seventh fails once, every thirteenth twice.
        if (id.is_multiple_of(7) && given.attempt == 1) || (id.is_multiple_of(13) && given.attempt <= 2) {
            return Err(format!("{id} failed"));
        }
        self.done.lock().unwrap().entry(key).or_default().push(id);
        Ok(())
    }

    fn assert_in_order(&self, keys: usize, each: u64) {
        assert_eq!(self.clashes.all(), Vec::<String>::new());
        let done = self.done.lock().unwrap();
        assert_eq!(done.len(), keys);
        for ids in done.values() {
            assert_eq!(ids.len() as u64, each);
            assert!(ids.is_sorted(), "{ids:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_key_keeps_its_order_with_many_workers_through_retries() {
    let (broker, lanes) = (MemoryBroker::new(), Lanes::default());
    let running = start(broker.clone(), |scope| {
        let lanes = lanes.clone();
        scope
            .include(handler("orders", move |given| {
                let key = given.key.clone().unwrap();
                lanes.clone().handle(key, given)
            }))
            .workers(8)
            .retry(Retry::exponential(SECOND))
            .ordered_by(OrderBy::key());
    })
    .await;

    for id in 0..500u64 {
        publish_keyed(&broker, "orders", &format!("k{}", id % 10), &id.to_string()).await;
    }
    within(broker.idle("orders")).await;

    lanes.assert_in_order(10, 50);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_order_may_follow_a_header_or_a_part_of_the_message() {
    for by_header in [true, false] {
        let (broker, lanes) = (MemoryBroker::new(), Lanes::default());
        let running = start(broker.clone(), |scope| {
            let lanes = lanes.clone();
            let order = if by_header {
                OrderBy::header("customer")
            } else {
                OrderBy::message(|id: &u64| id % 5)
            };
            scope
                .include(handler("orders", move |given| {
                    let key = (given.id() % 5).to_string();
                    lanes.clone().handle(key, given)
                }))
                .workers(8)
                .ordered_by(order);
        })
        .await;

        for id in 0..200u64 {
            let headers: HeaderMap = [("customer", (id % 5).to_string())].into_iter().collect();
            publish_with(&broker, "orders", id.to_string().as_bytes(), &headers).await;
        }
        within(broker.idle("orders")).await;

        lanes.assert_in_order(5, 40);
        running.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_hot_slow_key_does_not_delay_the_others() {
    let (broker, handled) = (MemoryBroker::new(), Record::<(String, u64)>::default());
    let hot: Vec<String> = (0..1_000).map(|id| id.to_string()).collect();
    let messages: Vec<_> = hot
        .iter()
        .map(|id| Outgoing::new("orders", id.as_bytes()).with_key(b"hot"))
        .collect();
    broker.publisher().publish(&messages).await.unwrap();
    for id in 0..20 {
        publish_keyed(&broker, "orders", &format!("cold-{id}"), "7").await;
    }
    let begun = Instant::now();
    let running = start(broker.clone(), |scope| {
        let handled = handled.clone();
        scope
            .include(handler("orders", move |given| {
                let handled = handled.clone();
                async move {
                    let key = given.key.unwrap();
                    if key == "hot" {
                        tokio::time::sleep(10 * SECOND).await;
                    }
                    handled.add((key, begun.elapsed().as_secs()));
                }
            }))
            .workers(8)
            .ordered_by(OrderBy::key());
    })
    .await;

    let first = handled.reaches(20).await;

    let cold: HashSet<_> = first
        .iter()
        .filter(|(key, second)| key != "hot" && *second == 0)
        .collect();
    assert_eq!(cold.len(), 20, "{first:?}");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_for_its_retry_keeps_no_worker_and_delays_no_other_key() {
    let (broker, handled) = (MemoryBroker::new(), Record::<(String, u64)>::default());
    let begun = Instant::now();
    let running = start(broker.clone(), |scope| {
        let handled = handled.clone();
        scope
            .include(handler("orders", move |given| {
                handled.add((given.text.clone(), begun.elapsed().as_secs()));
                let fails = given.text == "a1" && given.attempt == 1;
                ready(if fails { Err("once") } else { Ok(()) })
            }))
            .retry(Retry::fixed(60 * SECOND))
            .ordered_by(OrderBy::key());
    })
    .await;

    for (key, text) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")] {
        publish_keyed(&broker, "orders", key, text).await;
    }
    within(broker.idle("orders")).await;

    let expected = [("a1", 0), ("b1", 0), ("b2", 0), ("a1", 60), ("a2", 60)];
    assert_eq!(handled.all(), expected.map(|(text, second)| (text.to_owned(), second)));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_after_its_message_became_a_dead_letter() {
    for named in [false, true] {
        let (broker, handled) = (MemoryBroker::new(), Record::<String>::default());
        let running = start(broker.clone(), |scope| {
            let handled = handled.clone();
            let orders = scope.include(handler("orders", move |given| {
                handled.add(given.text.clone());
                ready(if given.text == "a1" { Err("no") } else { Ok(()) })
            }));
            orders
                .workers(4)
                .retry(Retry::fixed(SECOND).attempts(3))
                .ordered_by(OrderBy::key());
            if named {
                orders.dead_letter("graveyard");
            }
        })
        .await;

        for text in ["a1", "a2"] {
            publish_keyed(&broker, "orders", "a", text).await;
        }
        within(broker.idle("orders")).await;

        assert_eq!(handled.all(), ["a1", "a1", "a1", "a2"]);
        running.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_key_waits_for_none() {
    let (broker, gate, begun) = (MemoryBroker::new(), Gate::closed(), Record::<u64>::default());
    let running = start(broker.clone(), |scope| {
        let (gate, begun) = (gate.clone(), begun.clone());
        scope
            .include(handler("orders", move |given| {
                begun.add(given.id());
                let gate = gate.clone();
                async move { gate.pass().await }
            }))
            .workers(4)
            .ordered_by(OrderBy::key());
    })
    .await;

    publish_ids(&broker, "orders", 1..=4).await;
    // All four at once: none has ended.
    assert_eq!(begun.reaches(4).await.len(), 4);
    gate.let_go(4);
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_decode_has_no_key() {
    let (broker, seen) = (MemoryBroker::new(), Record::<String>::default());
    let running = start(broker.clone(), |scope| {
        let seen = seen.clone();
        scope
            .include(handler("orders", move |given| {
                seen.add(given.text);
                ready(())
            }))
            .workers(2)
            .ordered_by(OrderBy::message(|id: &u64| *id));
    })
    .await;

    common::publish(&broker, "orders", ["x", "1", ""]).await;
    within(broker.idle("orders")).await;

    assert_eq!(seen.len(), 3);
    running.shutdown().await.unwrap();
}

/// Reads itself: the first byte is its key.
struct Frame(u8);

impl<'a> Message<'a> for Frame {
    fn read(incoming: Incoming<'a>, _: &Codec) -> Result<Self, CodecError> {
        match incoming.payload() {
            [key, ..] => Ok(Self(*key)),
            [] => Err(CodecError::new("a frame has a key")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_taken_from_the_message_as_its_handler_reads_it() {
    let (broker, handled) = (MemoryBroker::new(), Record::<String>::default());
    let slow_first = {
        let handled = handled.clone();
        move |given: Given| {
            let handled = handled.clone();
            async move {
                let wait = if given.text.ends_with('1') { 60 } else { 0 };
                tokio::time::sleep(Duration::from_secs(wait)).await;
                handled.add(given.text);
            }
        }
    };
    let running = start(broker.clone(), |scope| {
        scope
            .include(handler("frames", slow_first.clone()))
            .workers(4)
            .ordered_by(OrderBy::message(|frame: &Frame| frame.0));
        scope
            .include(handler("texts", slow_first))
            .workers(4)
            .codec(Codec::Raw)
            .ordered_by(OrderBy::message(|text: &String| text.as_bytes().first().copied()));
    })
    .await;

    for name in ["frames", "texts"] {
        common::publish(&broker, name, ["a1", "a2", "b2"]).await;
        within(broker.idle(name)).await;
    }

    assert_eq!(handled.all(), ["b2", "a1", "a2", "b2", "a1", "a2"]);
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_keep_their_order_on_several_threads() {
    let (broker, done) = (
        MemoryBroker::new(),
        Arc::new(Mutex::new(BTreeMap::<String, Vec<u64>>::new())),
    );
    let running = start(broker.clone(), |scope| {
        let done = done.clone();
        scope
            .include(handler("orders", move |given| {
                let done = done.clone();
                async move {
                    for _ in 0..given.id() % 3 {
                        tokio::task::yield_now().await;
                    }
                    if given.id().is_multiple_of(11) && given.attempt == 1 {
                        return Err("once");
                    }
                    done.lock()
                        .unwrap()
                        .entry(given.key.clone().unwrap())
                        .or_default()
                        .push(given.id());
                    Ok(())
                }
            }))
            .workers(8)
            .retry(Retry::fixed(Duration::from_millis(1)))
            .ordered_by(OrderBy::key());
    })
    .await;

    for id in 0..2_000u64 {
        publish_keyed(&broker, "orders", &format!("k{}", id % 17), &id.to_string()).await;
    }
    within(broker.idle("orders")).await;

    let done = done.lock().unwrap().clone();
    assert_eq!(done.values().map(Vec::len).sum::<usize>(), 2_000);
    assert!(done.values().all(|ids| ids.is_sorted()));
    running.shutdown().await.unwrap();
}

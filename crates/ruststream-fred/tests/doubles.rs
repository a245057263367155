//! Services on streams, lists and channels, tested without a server: who gets what is as Redis has it.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ruststream::prelude::*;
use ruststream::testing::TestApp;
use ruststream::transport::TransportError;
use ruststream_fred::{Form, RedisBroker, RedisChannel, RedisCommands, RedisList, RedisPublish, RedisStream};

/// What each handler got.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<&'static str, Vec<u64>>>>);

impl Seen {
    fn note(&self, handler: &'static str, id: u64) {
        self.0.lock().unwrap().entry(handler).or_default().push(id);
    }

    fn of(&self, handlers: &[&str]) -> Vec<u64> {
        let seen = self.0.lock().unwrap();
        let mut all: Vec<u64> = handlers
            .iter()
            .filter_map(|one| seen.get(one))
            .flatten()
            .copied()
            .collect();
        all.sort_unstable();
        all
    }
}

macro_rules! handlers {
    ($($name:ident),*) => {
        $(
            #[subscriber("by-source")]
            async fn $name(id: u64, State(seen): State<Seen>) {
                seen.note(stringify!($name), id);
            }
        )*
    };
}

handlers!(first, second, third, fourth);

async fn start(seen: &Seen, mount: impl FnOnce(&mut ruststream::app::BrokerScope<'_, RedisBroker, Seen>)) -> TestApp {
    // Nobody connects to it.
    let broker = RedisBroker::standalone("redis://localhost:1");
    let app = RustStream::new(AppInfo::new("doubles", "1")).state(seen.clone());
    TestApp::start_paused(app.with_broker(broker, mount)).await.unwrap()
}

async fn ten(test: &TestApp, name: &'static str) {
    for id in 0..10u64 {
        test.publish(name, &id).await.unwrap();
    }
    test.settled().await;
}

#[tokio::test]
async fn each_group_of_a_stream_gets_each_message_and_one_consumer_of_a_group() {
    let seen = Seen::default();
    let test = start(&seen, |broker| {
        let orders = RedisStream::new("orders");
        broker.include(first).source(orders.clone().group("billing"));
        broker.include(second).source(orders.clone().group("billing"));
        broker.include(third).source(orders.clone().group("audit"));
        broker.include(fourth).source(orders);
    })
    .await;

    ten(&test, "orders").await;

    let all: Vec<u64> = (0..10).collect();
    assert_eq!(seen.of(&["first", "second"]), all);
    assert_eq!(seen.of(&["third"]), all);
    assert_eq!(seen.of(&["fourth"]), all, "the group of the broker");
}

#[tokio::test]
async fn a_list_gives_each_message_to_one() {
    let seen = Seen::default();
    let test = start(&seen, |broker| {
        broker.include(first).source(RedisList::new("jobs"));
        broker.include(second).source(RedisList::new("jobs").at_most_once());
    })
    .await;

    ten(&test, "jobs").await;

    assert_eq!(seen.of(&["first", "second"]), (0..10).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_channel_reaches_all_who_listen_and_patterns_are_those_of_redis() {
    let seen = Seen::default();
    let test = start(&seen, |broker| {
        broker.include(first).source(RedisChannel::new("news.eu.paris"));
        broker.include(second).source(RedisChannel::sharded("news.eu.paris"));
        broker.include(third).source(RedisChannel::pattern("news.*"));
        broker.include(fourth).source(RedisChannel::pattern("n[aeo]ws.??.p*"));
    })
    .await;

    let to_a_channel = RedisPublish::default().form(Form::Channel);
    test.publish("news.eu.paris", &1u64)
        .options(to_a_channel)
        .await
        .unwrap();
    test.publish("news.us", &2u64).await.unwrap();
    test.publish("gossip", &3u64).await.unwrap();
    test.settled().await;

    assert_eq!(seen.of(&["first"]), [1]);
    assert_eq!(seen.of(&["second"]), [1]);
    assert_eq!(seen.of(&["third"]), [1, 2]);
    assert_eq!(seen.of(&["fourth"]), [1]);
}

/// A retry is of the group whose handler asked for it, and so is a dead letter.
#[subscriber("by-source")]
async fn fail(id: u64, State(seen): State<Seen>) -> Result<(), String> {
    seen.note("fail", id);
    Err("never".to_owned())
}

#[tokio::test]
async fn a_retry_is_the_own_groups_and_a_dead_letter_too() {
    let seen = Seen::default();
    let test = start(&seen, |broker| {
        let orders = RedisStream::new("orders");
        let thrice = Retry::exponential(Duration::from_mins(1)).attempts(3);
        broker
            .include(fail)
            .source(orders.clone().group("billing"))
            .retry(thrice);
        broker.include(third).source(orders.group("audit"));
    })
    .await;

    test.publish("orders", &7u64).await.unwrap();
    test.settled().await;

    assert_eq!(seen.of(&["fail"]), [7, 7, 7]);
    assert_eq!(seen.of(&["third"]), [7]);
    assert_eq!(test.dead_letters("orders").len(), 1);
}

#[subscriber("by-source")]
async fn count(id: u64, commands: RedisCommands, State(seen): State<Seen>) -> Result<(), TransportError> {
    commands.queue("INCR", ["orders:count"])?;
    seen.note("count", id);
    Ok(())
}

#[tokio::test]
async fn a_handler_that_queues_commands_runs_too() {
    let seen = Seen::default();
    let test = start(&seen, |broker| {
        broker.include(count).source(RedisStream::new("orders").atomic());
    })
    .await;

    test.publish("orders", &7u64).await.unwrap();
    test.settled().await;

    assert_eq!(seen.of(&["count"]), [7]);
    assert!(test.panics().is_empty());
}

//! What one message costs in process: instructions by callgrind, allocations by DHAT, and messages a second.
//!
//! `cargo bench -p ruststream --bench dispatch` prints all; a figure is `(cost(2M) - cost(M)) / M`, so that what happens once
//! cancels out. Messages are published in rounds, each handled before the next, and publishing is no part of the figure. With `RUN MESSAGES` as arguments it makes one run.

#![allow(missing_docs, clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ruststream::app::{AppInfo, RustStream};
use ruststream::handler::{
    BatchOutcome, Batched, Call, Definition, Handler, Layers, Mounting, Outcome, Single, Subscriber,
};
use ruststream::memory::{MemoryBroker, MemoryFetch, MemorySettle, Queue};
use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Delivery, Fetch, Publish, Settle, Source, Verdict};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::Instant;

const SCENARIOS: &[&str] = &["bytes", "json-small", "pool4", "batch64", "reply"];

/// Counts down to a signal.
struct Left {
    left: AtomicU64,
    done: Notify,
}

impl Left {
    fn one(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.done.notify_one();
        }
    }
}

#[derive(Deserialize)]
struct Order {
    id: u64,
    cents: i64,
}

const BODY: &[u8] = br#"{"id":7,"cents":1250}"#;
/// Messages published at a time.
const ROUND: u64 = 1024;

struct Bytes(Arc<Left>);
struct Json(Arc<Left>);
struct Batch(Arc<Left>);
struct Reply(Arc<Left>);

impl Single<()> for Bytes {
    async fn call<'a>(&'a self, call: Call<'a, ()>) -> Outcome {
        assert!(!call.incoming().payload().is_empty());
        self.0.one();
        Outcome::ACK
    }
}

impl Single<()> for Json {
    async fn call<'a>(&'a self, call: Call<'a, ()>) -> Outcome {
        let order: Order = match call.decode() {
            Ok(order) => order,
            Err(outcome) => return outcome,
        };
        assert!(order.id == 7 && order.cents == 1250);
        self.0.one();
        Outcome::ACK
    }
}

impl Single<()> for Reply {
    async fn call<'a>(&'a self, call: Call<'a, ()>) -> Outcome {
        let order: Order = match call.decode() {
            Ok(order) => order,
            Err(outcome) => return outcome,
        };
        self.0.one();
        call.reply(Some("receipts"), &order.id)
    }
}

impl Batched<()> for Batch {
    async fn call<'a>(&'a self, calls: Vec<Call<'a, ()>>) -> BatchOutcome {
        let mut orders = Vec::with_capacity(calls.len());
        for call in calls {
            match call.decode::<Order>() {
                Ok(order) => orders.push(order),
                Err(outcome) => return BatchOutcome::All(outcome),
            }
        }
        for order in &orders {
            assert!(order.id == 7);
            self.0.one();
        }
        BatchOutcome::All(Outcome::ACK)
    }
}

macro_rules! subscriber {
    ($handler:ty, $make:ident, $definition:expr) => {
        impl Subscriber<()> for $handler {
            fn definition(&self) -> Definition {
                $definition
            }

            fn into_handler<L: Layers>(self, mounting: Mounting<(), L>) -> Handler {
                mounting.$make(self)
            }
        }
    };
}

subscriber!(Bytes, single, Definition::new("bytes", "in"));
subscriber!(Json, single, Definition::new("json", "in"));
subscriber!(Reply, single, Definition::new("reply", "in").with_reply("receipts"));
subscriber!(Batch, batched, Definition::new("batch", "in").with_batch());

/// Reads and acks replies, so that they do not heap up.
struct Receipts {
    fetch: MemoryFetch,
    settle: MemorySettle,
}

impl Receipts {
    async fn open(broker: &MemoryBroker) -> Self {
        let connection = broker.connect().await.unwrap();
        let (fetch, settle) = Queue::new("receipts").open(&connection).await.unwrap();
        Self { fetch, settle }
    }

    fn drain(&mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut chunk = Vec::new();
        while pin!(self.fetch.fetch(ROUND as usize, &mut chunk)).poll(cx).is_ready() {
            let mut acked = chunk.drain(..).map(|one| (one.into_receipt(), Verdict::Ack)).collect();
            assert!(
                pin!(self.settle.settle(&mut acked)).poll(cx).is_ready(),
                "a memory queue settles at once"
            );
        }
    }
}

/// Publishes a round, and reads the replies of the round before. Callgrind counts nothing in here.
#[inline(never)]
fn publish_round(broker: &MemoryBroker, receipts: &mut Receipts) {
    receipts.drain();
    let publisher = broker.publisher();
    for _ in 0..ROUND {
        let outgoing = [Outgoing::new("in", BODY)];
        let mut publishing = pin!(publisher.publish(&outgoing));
        let polled = publishing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(()))), "a memory queue has room");
    }
}

async fn run(scenario: &str, messages: u64) {
    let broker = MemoryBroker::new();
    let feed = broker.clone();
    let mut receipts = Receipts::open(&broker).await;
    let left = Arc::new(Left {
        left: AtomicU64::new(ROUND),
        done: Notify::new(),
    });
    let handler = left.clone();
    let running = RustStream::new(AppInfo::new("bench", "0"))
        .with_broker(broker, |broker| {
            match scenario {
                "bytes" => broker.include(Bytes(handler)),
                "json-small" => broker.include(Json(handler)),
                "pool4" => broker.include(Json(handler)).workers(4),
                "batch64" => broker.include(Batch(handler)),
                "reply" => broker.include(Reply(handler)),
                other => panic!("no scenario is named {other}"),
            };
        })
        .start()
        .await
        .unwrap();
    for _ in 0..messages / ROUND {
        left.left.store(ROUND, Ordering::Relaxed);
        publish_round(&feed, &mut receipts);
        left.done.notified().await;
    }
    running.shutdown().await.unwrap();
}

fn runtime(scenario: &str) -> tokio::runtime::Runtime {
    match scenario {
        "pool4" => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap(),
        _ => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap(),
    }
}

fn allocations(scenario: &str, messages: u64) -> i64 {
    let output = Command::new("valgrind")
        .args(["--tool=dhat", "--dhat-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args([scenario, &messages.to_string()])
        .output()
        .expect("valgrind is installed");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let blocks = text
        .lines()
        .find(|line| line.contains("Total:"))
        .and_then(|line| line.split(" in ").nth(1));
    let number = blocks
        .and_then(|text| text.split(' ').next())
        .map(|number| number.replace(',', ""));
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("DHAT said: {text}"))
}

/// All instructions but those of publishing.
fn instructions(scenario: &str, messages: u64) -> i64 {
    collected(scenario, messages, &[]) - collected(scenario, messages, &["--toggle-collect=*publish_round*"])
}

fn collected(scenario: &str, messages: u64, options: &[&str]) -> i64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(options)
        .arg(std::env::current_exe().unwrap())
        .args([scenario, &messages.to_string()])
        .output()
        .expect("valgrind is installed");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = text.lines().find_map(|line| line.split("Collected :").nth(1));
    collected
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("callgrind said: {text}"))
}

fn per_message(count: fn(&str, u64) -> i64, scenario: &str) -> f64 {
    let messages = 20 * ROUND;
    (count(scenario, 2 * messages) - count(scenario, messages)) as f64 / messages as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if let [scenario, messages] = &arguments[..]
        && messages.parse::<u64>().is_ok()
    {
        runtime(scenario).block_on(run(scenario, messages.parse().expect("a number of messages")));
        return;
    }
    for scenario in SCENARIOS
        .iter()
        .filter(|name| arguments.is_empty() || arguments.iter().any(|one| one == **name))
    {
        let instructions = per_message(instructions, scenario);
        let allocations = per_message(allocations, scenario);
        let started = Instant::now();
        let many = 400_000;
        runtime(scenario).block_on(run(scenario, many));
        let took = started.elapsed().max(Duration::from_nanos(1));
        println!(
            "{scenario:12} {instructions:7.0} instructions {allocations:6.3} allocations {:10.0} msg/s (publishing included)",
            many as f64 / took.as_secs_f64()
        );
    }
}

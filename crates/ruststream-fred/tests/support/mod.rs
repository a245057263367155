//! What the tests share: servers of their own, and a subscription whose waits have deadlines.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::process::Command;
use std::time::Duration;

use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Connection, Delivery, Fetch, Publish, Settle, Settled, Source, Verdict};
use ruststream_fred::{RedisBroker, RedisConnection, RedisStream, StreamDelivery, StreamFetch, StreamSettle};
use servers::{Instance, Kind, Settings};

/// How long a test waits for what is to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server of a test's own.
pub(crate) struct Server {
    pub(crate) instance: Instance,
}

impl Server {
    pub(crate) fn start() -> Self {
        let instance = Instance::start(Kind::Redis, Settings::default()).unwrap();
        Self { instance }
    }

    /// One that has what it confirmed after it was killed.
    pub(crate) fn durable() -> Self {
        let instance = Instance::start(Kind::Redis, Settings { durable: true }).unwrap();
        Self { instance }
    }

    pub(crate) fn broker(&self) -> RedisBroker {
        RedisBroker::standalone(self.instance.url())
    }

    pub(crate) async fn connect(&self) -> RedisConnection {
        self.broker().connect().await.unwrap()
    }

    /// Runs a command as an operator does, and answers what it says.
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        cli(self.instance.port(), words)
    }

    /// How often the server has run a command since its start.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats = self.cli(&["INFO", "commandstats"]);
        stats
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))
            .and_then(|rest| rest.split(',').next())
            .map_or(0, |count| count.parse().unwrap())
    }

    /// How many commands clients have sent, those of scripts not counted.
    pub(crate) fn commands(&self) -> u64 {
        let stats = self.cli(&["INFO", "stats"]);
        let count = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_commands_processed:"));
        count.unwrap().trim().parse().unwrap()
    }

    /// How many entries of a group are in someone's hands, and how many wait for a retry.
    pub(crate) fn pending(&self, stream: &str, group: &str) -> (u64, u64) {
        let count = |group: &str| {
            let answer = self.cli(&["XPENDING", stream, group]);
            answer.lines().next().unwrap().trim().parse().unwrap()
        };
        (count(group), count(&format!("{group}:retries")))
    }

    pub(crate) fn length(&self, stream: &str) -> u64 {
        self.cli(&["XLEN", stream]).trim().parse().unwrap()
    }
}

/// Runs `redis-cli`.
pub(crate) fn cli(port: u16, words: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["-p", &port.to_string()])
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

/// Both halves of a subscription.
pub(crate) struct Reader {
    pub(crate) fetch: StreamFetch,
    pub(crate) settle: StreamSettle,
}

impl Reader {
    pub(crate) async fn open(source: RedisStream, connection: &RedisConnection) -> Self {
        let (fetch, settle) = source.open(connection).await.unwrap();
        Self { fetch, settle }
    }

    /// The next deliveries, at least one; passing errors are followed by `recover`, as the runtime does it.
    pub(crate) async fn next(&mut self, room: usize) -> Vec<StreamDelivery> {
        let mut deliveries = Vec::new();
        let taking = async {
            loop {
                match self.fetch.fetch(room, &mut deliveries).await {
                    Ok(()) => return,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
                while let Err(error) = self.fetch.recover().await {
                    assert!(error.is_transient(), "{error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        tokio::time::timeout(PATIENCE, taking).await.expect("nothing came");
        deliveries
    }

    pub(crate) async fn take(&mut self, count: usize) -> Vec<StreamDelivery> {
        let mut deliveries = Vec::new();
        while deliveries.len() < count {
            deliveries.extend(self.next(count - deliveries.len()).await);
        }
        deliveries
    }

    /// True if a fetch brings nothing for so long.
    pub(crate) async fn is_quiet_for(&mut self, time: Duration) -> bool {
        let mut deliveries = Vec::new();
        let fetch = self.fetch.fetch(1, &mut deliveries);
        tokio::time::timeout(time, fetch).await.is_err()
    }

    pub(crate) async fn end(&mut self, deliveries: Vec<StreamDelivery>, verdict: Verdict) -> Settled {
        let mut finished = deliveries
            .into_iter()
            .map(|delivery| (delivery.into_receipt(), verdict.clone()))
            .collect();
        let settled = self.settle.settle(&mut finished).await.unwrap();
        assert!(finished.is_empty());
        settled
    }

    pub(crate) async fn ack(&mut self, deliveries: Vec<StreamDelivery>) -> Settled {
        self.end(deliveries, Verdict::Ack).await
    }
}

pub(crate) fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

pub(crate) async fn publish<P: AsRef<[u8]>>(connection: &RedisConnection, stream: &str, payloads: &[P]) {
    let messages: Vec<_> = payloads
        .iter()
        .map(|payload| Outgoing::new(stream, payload.as_ref()))
        .collect();
    connection.publisher().publish(&messages).await.unwrap();
}

pub(crate) fn payloads(deliveries: &[StreamDelivery]) -> Vec<String> {
    deliveries
        .iter()
        .map(|delivery| String::from_utf8(delivery.payload().to_vec()).unwrap())
        .collect()
}

/// Looks until `there` says yes: for what has no signal of its own.
pub(crate) async fn eventually<T: std::fmt::Debug>(mut look: impl FnMut() -> T, there: impl Fn(&T) -> bool) -> T {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if there(&seen) {
            return seen;
        }
        assert!(
            tokio::time::Instant::now() < until,
            "it never came; last seen: {seen:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

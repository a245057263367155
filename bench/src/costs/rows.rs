//! The rows: which costs are counted.

use super::counted::Run;
use crate::results::Counts;

/// The messages of the shorter run; the longer one handles twice as many.
pub const MESSAGES: u64 = 4 * 1024;

/// One scenario whose cost is counted.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name: `memory.json-small`.
    pub id: &'static str,
    /// A short name for people.
    pub title: &'static str,
    /// The hand-written loops beside the service.
    pub counterparts: &'static [&'static str],
    /// The most that a message is meant to cost.
    pub promised: Option<Promise>,
}

/// The most that a message is meant to cost.
#[derive(Debug, Clone, Copy)]
pub enum Promise {
    /// So much.
    AtMost(Counts),
    /// So much more than in another row.
    Over(&'static str, Counts),
}

/// The loop that a user of the framework writes.
pub const SERVICE: &str = "service";
/// The loop over the client alone.
pub const BARE: &str = "bare";

impl Row {
    /// What is run to count it: each loop and how far it goes.
    pub fn runs(&self) -> Vec<(&'static str, Run)> {
        let loops = std::iter::once(&SERVICE).chain(self.counterparts);
        let steady = loops.flat_map(|name| [(*name, Run::Messages(MESSAGES)), (*name, Run::Messages(2 * MESSAGES))]);
        let cold = [(SERVICE, Run::Idle), (SERVICE, Run::First)];
        steady.chain(cold).collect()
    }
}

const fn at_most(instructions: f64, allocations: f64) -> Promise {
    Promise::AtMost(Counts {
        instructions,
        allocations,
    })
}

/// What layers may cost, each.
const fn layers(number: u32) -> Promise {
    let each = Counts {
        instructions: 25.0 * number as f64,
        allocations: 0.0,
    };
    Promise::Over("memory.json-small", each)
}

/// The rows of the in-process broker.
pub const MEMORY: &[Row] = &[
    Row {
        id: "memory.bytes",
        title: "bytes, no codec",
        counterparts: &[BARE],
        promised: Some(at_most(350.0, 0.0)),
    },
    Row {
        id: "memory.json-small",
        title: "JSON into a small struct",
        counterparts: &[BARE],
        promised: Some(at_most(1_200.0, 0.0)),
    },
    Row {
        id: "memory.json-1kb",
        title: "1 KB of JSON",
        counterparts: &[BARE],
        promised: Some(at_most(8_500.0, 0.0)),
    },
    Row {
        id: "memory.pool4",
        title: "four workers",
        counterparts: &[BARE],
        promised: Some(at_most(1_600.0, 0.0)),
    },
    Row {
        id: "memory.layer1",
        title: "one layer",
        counterparts: &[],
        promised: Some(layers(1)),
    },
    Row {
        id: "memory.layer4",
        title: "four layers",
        counterparts: &[],
        promised: Some(layers(4)),
    },
    Row {
        id: "memory.batch64",
        title: "batches of 64",
        counterparts: &[BARE],
        promised: Some(at_most(1_100.0, 0.02)),
    },
    Row {
        id: "memory.reply",
        title: "a reply",
        counterparts: &[BARE],
        promised: Some(at_most(2_000.0, 1.0)),
    },
    Row {
        id: "memory.reply-lent",
        title: "a reply to a transport that only reads the bytes",
        counterparts: &[BARE],
        promised: Some(at_most(1_600.0, 0.0)),
    },
    Row {
        id: "memory.publish",
        title: "publishing from the handler, through one layer",
        counterparts: &[BARE],
        promised: Some(at_most(2_600.0, 4.0)),
    },
    Row {
        id: "memory.publish-headers",
        title: "publishing from the handler, with two headers",
        counterparts: &[BARE],
        promised: Some(at_most(2_600.0, 4.0)),
    },
    Row {
        id: "memory.headers-publish",
        title: "headers read into a struct, then publishing",
        counterparts: &[BARE],
        promised: None,
    },
    Row {
        id: "memory.request-reply",
        title: "a request and its reply",
        counterparts: &[BARE],
        promised: Some(at_most(6_000.0, 8.0)),
    },
    Row {
        id: "memory.redeliver",
        title: "handled twice",
        counterparts: &[BARE],
        promised: Some(at_most(2_500.0, 0.0)),
    },
];

const fn redis(id: &'static str, title: &'static str, promised: Option<Promise>) -> Row {
    Row {
        id,
        title,
        counterparts: &[],
        promised,
    }
}

/// The rows of Redis, on one server.
pub const REDIS: &[Row] = &[
    redis(
        "redis.stream",
        "stream, consumer group, JSON into a small struct",
        Some(at_most(15_000.0, 12.0)),
    ),
    redis("redis.stream-batch64", "stream, batches of 64", None),
    redis("redis.stream-reply", "stream, a reply", None),
    redis(
        "redis.stream-pipeline",
        "stream, one INCR a message in the pipeline of the acks",
        Some(at_most(30_000.0, f64::INFINITY)),
    ),
    redis(
        "redis.stream-atomic",
        "stream, one INCR a message with its ack, each asked of the server",
        Some(at_most(60_000.0, f64::INFINITY)),
    ),
    redis("redis.list", "reliable list", Some(at_most(15_000.0, 12.0))),
    redis(
        "redis.list-pipeline",
        "reliable list, one INCR a message with its ack",
        None,
    ),
    redis("redis.channel-pipeline", "channel, one INCR a message", None),
    redis("redis.channel", "channel", Some(at_most(8_000.0, 5.0))),
    redis("redis.pattern", "channels by pattern", None),
];

/// The rows of MQTT.
pub const MQTT: &[Row] = &[
    Row {
        id: "mqtt.qos1",
        title: "QoS 1 topic, JSON into a small struct, ack each",
        counterparts: &[],
        promised: Some(at_most(8_500.0, 1.0)),
    },
    Row {
        id: "mqtt.reply",
        title: "QoS 1 topic, a reply through the crate's publisher",
        counterparts: &[],
        promised: Some(at_most(16_000.0, 6.0)),
    },
    Row {
        id: "mqtt.batch64",
        title: "QoS 1 topic, batches of 64 assembled on the client",
        counterparts: &[],
        promised: Some(at_most(8_500.0, 1.0)),
    },
    Row {
        id: "mqtt.filters-1000",
        title: "QoS 1, to one of 1,000 filters",
        counterparts: &[],
        promised: Some(Promise::Over(
            "mqtt.qos1",
            Counts {
                instructions: 300.0,
                allocations: 0.0,
            },
        )),
    },
];

/// All rows of all transports.
pub fn all() -> impl Iterator<Item = &'static Row> {
    MEMORY.iter().chain(REDIS).chain(MQTT)
}

/// The row of this name.
pub fn find(id: &str) -> Option<&'static Row> {
    all().find(|row| row.id == id)
}

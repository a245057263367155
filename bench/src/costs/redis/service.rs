//! What a user of the framework writes: a handler and an app.

use ruststream::app::Running;
use ruststream::prelude::*;
use ruststream::transport::TransportError;
use ruststream_fred::{RedisBroker, RedisChannel, RedisCommands, RedisList, RedisSource, RedisStream};
use serde::{Deserialize, Serialize};
use servers::Instance;

use super::{IN, MESSAGES, rounds};
use crate::costs::counted::Run;

/// A small message.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Order {
    id: u64,
    cents: i64,
}

const SMALL: &str = r#"{"id":7,"cents":1250}"#;

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    order: u64,
}

#[subscriber("in")]
async fn each(order: Order) {
    assert_eq!(order.id, 7);
    MESSAGES.one();
}

#[subscriber("in")]
async fn batch(orders: &[Order]) {
    for order in orders {
        assert_eq!(order.id, 7);
        MESSAGES.one();
    }
}

#[subscriber("in", reply = "out")]
async fn reply(order: Order) -> Receipt {
    MESSAGES.one();
    Receipt { order: order.id }
}

#[subscriber("in")]
async fn incr(order: Order, commands: RedisCommands) -> Result<(), TransportError> {
    assert_eq!(order.id, 7);
    MESSAGES.one();
    commands.queue("INCR", ["count"])
}

pub(super) async fn run(name: &str, server: Instance, run: Run) -> Result<(), String> {
    let xadd = ["XADD", IN, "*", "payload", SMALL];
    let lpush = ["LPUSH", IN, SMALL];
    let publish = ["PUBLISH", IN, SMALL];
    let stream = RedisStream::new(IN);
    let (words, source): (&[&str], RedisSource) = match name {
        "stream" | "stream-batch64" | "stream-reply" => (&xadd, stream.into()),
        "stream-pipeline" => (&xadd, stream.pipeline().into()),
        "stream-atomic" => (&xadd, stream.atomic().into()),
        "list" => (&lpush, RedisList::new(IN).into()),
        "list-pipeline" => (&lpush, RedisList::new(IN).pipeline().into()),
        "channel-pipeline" => (&publish, RedisChannel::new(IN).pipeline().into()),
        "channel" => (&publish, RedisChannel::new(IN).into()),
        "pattern" => (&publish, RedisChannel::pattern("i*").into()),
        other => return Err(format!("no row is named {other:?}")),
    };
    let url = server.url();
    let start = async || start(name, url, source).await;
    let (running, _server) = rounds(server, words, run, start).await?;
    running.shutdown().await.map_err(|error| error.to_string())
}

async fn start(name: &str, url: String, source: RedisSource) -> Result<Running, String> {
    let app = RustStream::new(AppInfo::new("costs", "0"));
    let app = app.with_broker(RedisBroker::standalone(url), |broker| {
        match name {
            "stream-batch64" => broker.include(batch).source(source).batch(64),
            "stream-reply" => broker.include(reply).source(source),
            "stream-pipeline" | "stream-atomic" | "list-pipeline" | "channel-pipeline" => {
                broker.include(incr).source(source)
            }
            _ => broker.include(each).source(source),
        };
    });
    app.start().await.map_err(|error| error.to_string())
}

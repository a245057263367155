//! The loops that a user of the framework writes: a handler and an app.

use ruststream::app::{BrokerScope, Running};
use ruststream::handler::{Call, Layer, Outcome, Single};
use ruststream::prelude::*;
use ruststream::publish::{Prepared, PublishLayer};
use ruststream::transport::{PublishError, TransportError};

use super::lent::Lent;
use super::messages::{Billed, ORDER, OUT, Order, Origin, Receipt};
use super::{MESSAGES, rounds};
use crate::costs::counted::Run;

#[subscriber("in")]
async fn bytes(payload: &[u8]) {
    assert!(!payload.is_empty());
    MESSAGES.one();
}

/// A small order is handled. Each row has a handler of its own, as each subscription of a service has: one that is mounted in many ways
/// is compiled otherwise.
#[inline]
fn handled(order: Order) {
    assert_eq!(order, ORDER);
    MESSAGES.one();
}

#[subscriber("in")]
async fn json_small(order: Order) {
    handled(order);
}

#[subscriber("in")]
async fn pool4(order: Order) {
    handled(order);
}

#[subscriber("in")]
async fn layer1(order: Order) {
    handled(order);
}

#[subscriber("in")]
async fn layer4(order: Order) {
    handled(order);
}

#[subscriber("in")]
async fn json_large(order: Billed<'_>) {
    assert!(order.is_right());
    MESSAGES.one();
}

#[subscriber("in")]
async fn batch(orders: &[Order]) {
    for order in orders {
        assert_eq!(*order, ORDER);
        MESSAGES.one();
    }
}

#[subscriber("in", reply = "out")]
async fn reply(order: Order) -> Receipt {
    MESSAGES.one();
    Receipt::of(order)
}

#[subscriber("in")]
async fn publish(order: Order, receipts: Out<Receipt>) -> Result<(), PublishError> {
    MESSAGES.one();
    receipts.publish(OUT, &Receipt::of(order)).await
}

#[subscriber("in")]
async fn publish_headers(order: Order, receipts: Out<Receipt>) -> Result<(), PublishError> {
    MESSAGES.one();
    receipts
        .publish(OUT, &Receipt::of(order))
        .header("region", "eu-west-1")
        .header("schema", "3")
        .await
}

#[subscriber("in")]
async fn headers_publish(
    order: Order,
    Headers(origin): Headers<Origin<'_>>,
    receipts: Out<Receipt>,
) -> Result<(), PublishError> {
    assert!(origin.region == "eu-west-1" && origin.schema == 3);
    MESSAGES.one();
    receipts.publish(OUT, &Receipt::of(order)).await
}

#[subscriber("in", reply)]
async fn answer(order: Order) -> Receipt {
    Receipt::of(order)
}

#[subscriber("in")]
async fn redeliver(order: Order, context: Context<'_>) -> HandlerOutcome {
    assert_eq!(order, ORDER);
    if context.attempt() == 1 {
        return HandlerOutcome::retry_after(Duration::ZERO);
    }
    MESSAGES.one();
    HandlerOutcome::ack()
}

/// A layer that does as little as one can: the figure is the way through it.
struct Through;

impl Layer for Through {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        next.call(call).await
    }
}

/// Marks what is published.
struct Marked;

impl PublishLayer for Marked {
    async fn before(&self, message: &mut Prepared) -> Result<(), TransportError> {
        message.headers_mut().insert("sent-by", "bench");
        Ok(())
    }
}

/// The service of a row, running.
async fn start(name: &str, broker: MemoryBroker) -> Result<Running, String> {
    let app = RustStream::new(AppInfo::new("bench", "0"));
    let mut known = true;
    let app = if name == "reply-lent" {
        app.with_broker(Lent(broker), |broker| {
            broker.include(reply);
        })
    } else {
        app.with_broker(broker, |broker| known = mount(name, broker))
    };
    if !known {
        return Err(format!("no row is named `memory.{name}`"));
    }
    app.start().await.map_err(|error| error.to_string())
}

/// Mounts the handler of a row; false where there is no such row.
fn mount(name: &str, broker: &mut BrokerScope<'_, MemoryBroker, ()>) -> bool {
    match name {
        "bytes" => broker.include(bytes),
        "json-small" => broker.include(json_small),
        "json-1kb" => broker.include(json_large),
        "pool4" => broker.include(pool4).workers(4),
        "batch64" => broker.include(batch),
        "reply" => broker.include(reply),
        "publish-headers" => broker.include(publish_headers),
        "headers-publish" => broker.include(headers_publish),
        "redeliver" => broker.include(redeliver),
        "request-reply" => broker.include(answer),
        "publish" => {
            broker.publish_layer(Marked);
            broker.include(publish)
        }
        "layer1" => {
            broker.layer(Through, |broker| {
                broker.include(layer1);
            });
            return true;
        }
        "layer4" => {
            broker.layer(Through, |broker| {
                broker.layer(Through, |broker| {
                    broker.layer(Through, |broker| {
                        broker.layer(Through, |broker| {
                            broker.include(layer4);
                        });
                    });
                });
            });
            return true;
        }
        _ => return false,
    };
    true
}

pub(super) async fn run(name: &str, run: Run) -> Result<(), String> {
    let broker = MemoryBroker::new();
    if name == "request-reply" {
        return ask(broker, run).await;
    }
    let running = rounds(&broker, name, run, async || start(name, broker.clone()).await).await?;
    running.shutdown().await.map_err(|error| error.to_string())
}

/// Requests, one after the other.
async fn ask(broker: MemoryBroker, run: Run) -> Result<(), String> {
    let messages = match run {
        Run::Idle => crate::costs::program::end_here(),
        Run::First => 1,
        Run::Messages(messages) => messages,
    };
    let running = start("request-reply", broker).await?;
    let client = running.client().await.map_err(|error| error.to_string())?;
    for _ in 0..messages {
        let answered = client.request::<Order, Receipt>("in", &ORDER).await;
        assert_eq!(answered.map_err(|error| error.to_string())?, Receipt::of(ORDER));
    }
    if run == Run::First {
        crate::costs::program::end_here();
    }
    running.shutdown().await.map_err(|error| error.to_string())
}

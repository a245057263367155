//! What a user of the framework writes: a handler and an app.

use ruststream::app::Running;
use ruststream::prelude::*;
use ruststream_rumqttc::{MqttBroker, TopicFilter};
use serde::{Deserialize, Serialize};

use super::{IN, MESSAGES};

/// How many filters stand beside the one that is fed.
const OTHERS: usize = 999;

/// A small message.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Order {
    id: u64,
    cents: i64,
}

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

pub(super) async fn start(name: &str, url: String) -> Result<Running, String> {
    let app = RustStream::new(AppInfo::new("costs", "0"));
    let app = app.with_broker(MqttBroker::new(url), |broker| match name {
        "batch64" => drop(broker.include(batch).batch(64)),
        "reply" => drop(broker.include(reply)),
        "filters-1000" => {
            for number in 0..OTHERS {
                broker.include(each).source(TopicFilter::new(format!("{IN}/{number}")));
            }
            broker.include(each);
        }
        _ => drop(broker.include(each)),
    });
    app.start().await.map_err(|error| error.to_string())
}

//! The first step: a handler on a queue in a file.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

use ruststream::prelude::*;
use ruststream_sqlx::SqlxBroker;

/// What a customer wants.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    customer: String,
    cents: i64,
}

/// Takes an order.
#[subscriber("orders")]
async fn confirm(order: Order) {
    println!("order {}: {} pays {} cents", order.id, order.customer, order.cents);
}

#[ruststream::app]
fn app() -> RustStream {
    let database = SqlxBroker::sqlite("shop.db");
    RustStream::new(AppInfo::new("shop", "1.0.0")).with_broker(database, |broker| {
        broker.include(confirm);
    })
}

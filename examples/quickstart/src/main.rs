//! A service takes orders from a durable queue in an SQLite file, fails some, retries them with backoff, keeps the poison one
//! as a dead letter, answers the rest, and loses none, even when it is killed in the middle and started again.
//!
//! `cargo run -p quickstart`, then again with a `kill -9` in between.

mod ledger;
mod report;

use std::path::PathBuf;
use std::sync::Arc;

use ruststream::prelude::*;
use ruststream_sqlx::{Inbox, SqlxBroker};

use crate::ledger::Ledger;

/// What a customer wants.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    customer: String,
    cents: i64,
}

/// What a customer gets.
#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    order: u64,
    text: String,
}

/// What handlers share.
#[derive(Debug, Clone)]
struct Shop {
    ledger: Arc<Ledger>,
}

/// Charges an order and answers with a receipt. The payment provider fails now and then, as they do.
#[subscriber("orders", reply = "receipts")]
async fn confirm(order: Order, context: Context<'_>, State(shop): State<Shop>) -> Result<Receipt, String> {
    tokio::time::sleep(Duration::from_millis(40)).await;
    if order.cents < 0 {
        return Err(format!(
            "order {} has a negative price of {} cents",
            order.id, order.cents
        ));
    }
    if order.id.is_multiple_of(10) && context.attempt() < 3 {
        return Err("the payment provider did not answer".to_owned());
    }
    shop.ledger
        .handled(order.id, context.attempt())
        .map_err(|error| error.to_string())?;
    Ok(Receipt {
        order: order.id,
        text: format!("{}: {} cents paid", order.customer, order.cents),
    })
}

/// Mails a receipt.
#[subscriber("receipts")]
async fn mail(receipt: Receipt, State(shop): State<Shop>) -> Result<(), String> {
    shop.ledger.mailed(receipt.order).map_err(|error| error.to_string())
}

#[ruststream::app]
fn app() -> Result<RustStream, Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::var_os("QUICKSTART_DIR").unwrap_or_else(|| "quickstart-data".into()));
    let shop = Shop {
        ledger: Arc::new(Ledger::open(&folder).map_err(|error| format!("{}: {error}", folder.display()))?),
    };
    let database = SqlxBroker::sqlite(folder.join("orders.db"));
    // A short lease, so that what a killed process had in hand comes back while you watch.
    let orders = Inbox::queue("orders").lease(Duration::from_secs(3));
    let receipts = Inbox::queue("receipts").lease(Duration::from_secs(3));
    let watched = (database.clone(), shop.ledger.clone());

    let app = RustStream::new(AppInfo::new("quickstart", env!("CARGO_PKG_VERSION")))
        .state(shop)
        .with_broker(database, |broker| {
            broker
                .include(confirm)
                .source(orders)
                .workers(8)
                .retry(Retry::exponential(Duration::from_millis(400)).attempts(4));
            broker.include(mail).source(receipts);
        })
        .after_startup(|app| report::begin(app, watched.0, watched.1))
        .shutdown_grace(Duration::from_secs(5));
    Ok(app.build())
}

//! A shop sells articles. Its handlers share a state, and the receipt that one returns is the message of another.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ruststream::app::AppBuilder;
use ruststream::handler::FromState;
use ruststream::prelude::*;

#[derive(Debug, Serialize, Deserialize)]
struct Sale {
    article: String,
    pieces: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    article: String,
    cents: u64,
}

/// What all handlers share. It is cloned for each call that asks for it, so what is in it is cheap to clone.
#[derive(Clone)]
struct Shop {
    prices: Arc<BTreeMap<&'static str, u64>>,
    till: Till,
}

/// A part of the state, for handlers that need no more.
#[derive(Clone, Default)]
struct Till(Arc<AtomicU64>);

impl FromState<Shop> for Till {
    fn from_state(shop: &Shop) -> Self {
        shop.till.clone()
    }
}

/// Sells an article. The sale is acked once its receipt is confirmed by the broker.
#[subscriber("sales", reply = "receipts")]
async fn sell(sale: Sale, State(shop): State<Shop>) -> Result<Receipt, String> {
    let Some(price) = shop.prices.get(sale.article.as_str()) else {
        return Err(format!("there is no `{}` in this shop", sale.article));
    };
    Ok(Receipt {
        cents: price * sale.pieces,
        article: sale.article,
    })
}

/// Takes the money.
#[subscriber("receipts")]
async fn take_in(receipt: Receipt, State(till): State<Till>) {
    till.0.fetch_add(receipt.cents, Ordering::Relaxed);
    println!("{} sold for {} cents", receipt.article, receipt.cents);
}

fn shop(broker: MemoryBroker, till: Till) -> AppBuilder<Shop> {
    let prices = Arc::new(BTreeMap::from([("screw", 3), ("hammer", 1_250)]));
    RustStream::new(AppInfo::new("shop", env!("CARGO_PKG_VERSION")))
        .state(Shop { prices, till })
        .with_broker(broker, |broker| {
            broker.include(sell).workers(4).retry(Retry::never());
            broker.include(take_in);
        })
}

#[ruststream::app]
fn app() -> RustStream {
    let (broker, till) = (MemoryBroker::new(), Till::default());
    shop(broker.clone(), till.clone()).after_startup(async move |app| {
        for (article, pieces) in [("screw", 100), ("hammer", 1), ("anvil", 1)] {
            let article = article.to_owned();
            app.publisher().publish("sales", &Sale { article, pieces }).await?;
        }
        broker.idle("sales").await;
        broker.idle("receipts").await;
        for dead in broker.dead_letters("sales") {
            println!("not sold: {}", dead.letter.error);
        }
        println!("{} cents are in the till", till.0.load(Ordering::Relaxed));
        app.stop();
        Ok(())
    })
}

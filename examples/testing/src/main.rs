//! A shop charges orders at a bank and answers with receipts. Its tests are in `tests.rs`.

#![allow(
    clippy::unused_async,
    reason = "a bank that is not made up is asked over the network"
)]

#[cfg(test)]
mod tests;

use ruststream::handler::{Call, IntoOutcome, Layer, Outcome, Single};
use ruststream::prelude::*;
use ruststream_sqlx::SqlxBroker;
use tokio::time::Instant;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    cents: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    order: u64,
}

#[derive(Debug, PartialEq, thiserror::Error)]
enum BankError {
    #[error("the bank is closed")]
    Closed,
    #[error("the card is declined")]
    Declined,
}

#[derive(Clone)]
struct Bank {
    opens: Instant,
}

impl Bank {
    async fn charge(&self, order: &Order) -> Result<(), BankError> {
        match order.cents {
            _ if Instant::now() < self.opens => Err(BankError::Closed),
            100_000.. => Err(BankError::Declined),
            _ => Ok(()),
        }
    }
}

/// Charges an order, and answers with a receipt.
#[subscriber("orders", reply = "receipts")]
async fn confirm(order: Order, State(bank): State<Bank>) -> Result<Receipt, BankError> {
    bank.charge(&order).await?;
    Ok(Receipt { order: order.id })
}

/// Lets through what our own checkout sends.
struct FromCheckout;

impl Layer for FromCheckout {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        match call.incoming().headers().get_str("sender") {
            Some("checkout") => next.call(call).await,
            _ => HandlerOutcome::dead_letter("the checkout did not send it").into_outcome(),
        }
    }
}

fn shop(bank: Bank) -> RustStream {
    RustStream::new(AppInfo::new("shop", env!("CARGO_PKG_VERSION")))
        .state(bank)
        .with_broker(SqlxBroker::sqlite("orders.db"), |broker| {
            broker.layer(FromCheckout, |checked| {
                checked
                    .include(confirm)
                    .workers(8)
                    .retry(Retry::fixed(Duration::from_mins(10)).attempts(10))
                    .retry_when(|error: &BankError| (*error == BankError::Declined).then(Retry::never))
                    .dead_letter("orders.refused");
            });
        })
        .build()
}

#[ruststream::app]
fn app() -> RustStream {
    shop(Bank { opens: Instant::now() })
}

//! The last step: the shop goes on when things fail. Its tests are in `tests.rs`.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ruststream::message::header;
use ruststream::prelude::*;
use ruststream_sqlx::SqlxBroker;

/// What a customer wants.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    customer: String,
    cents: i64,
}

/// What a customer gets.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    order: u64,
    text: String,
}

/// Why the bank does not pay.
#[derive(Debug, thiserror::Error)]
enum BankError {
    #[error("the bank is busy")]
    Busy,
    #[error("{cents} cents are above the limit of {limit}")]
    AboveLimit { cents: i64, limit: i64 },
}

/// A bank far away: it has a limit, and is busy at every third call.
#[derive(Clone)]
struct Bank {
    limit: i64,
    calls: Arc<AtomicU64>,
}

impl Bank {
    async fn charge(&self, order: &Order) -> Result<(), BankError> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let (cents, limit) = (order.cents, self.limit);
        if cents > limit {
            return Err(BankError::AboveLimit { cents, limit });
        }
        match self.calls.fetch_add(1, Ordering::Relaxed) % 3 {
            2 => Err(BankError::Busy),
            _ => Ok(()),
        }
    }
}

/// Charges an order, and answers with a receipt.
#[subscriber("orders", reply = "receipts")]
async fn confirm(order: Order, State(bank): State<Bank>, context: Context<'_>) -> Result<Receipt, BankError> {
    println!("order {}, attempt {}", order.id, context.attempt());
    bank.charge(&order).await?;
    Ok(Receipt {
        order: order.id,
        text: format!("{}: {} cents paid", order.customer, order.cents),
    })
}

/// Mails a receipt.
#[subscriber("receipts")]
async fn mail(receipt: Receipt) {
    println!("mailed: order {}, {}", receipt.order, receipt.text);
}

/// Tells a customer that there will be no receipt.
#[subscriber("orders.refused")]
async fn refuse(order: Order, headers: &HeaderMap) {
    let why = headers.get_str(header::DEAD_ERROR).unwrap_or("for a reason unknown");
    println!("order {} of {} is refused: {why}", order.id, order.customer);
}

fn shop(bank: Bank) -> RustStream {
    RustStream::new(AppInfo::new("shop", env!("CARGO_PKG_VERSION")))
        .state(bank)
        .with_broker(SqlxBroker::sqlite("shop.db"), |broker| {
            broker
                .include(confirm)
                .workers(8)
                .ordered_by(OrderBy::key())
                .timeout(Duration::from_secs(10))
                .retry(Retry::exponential(Duration::from_millis(200)).attempts(6))
                .retry_when(|error: &BankError| matches!(error, BankError::AboveLimit { .. }).then(Retry::never))
                .dead_letter("orders.refused");
            broker.include(mail).workers(2);
            broker.include(refuse);
        })
        .build()
}

#[ruststream::app]
fn app() -> RustStream {
    shop(Bank {
        limit: 100_000,
        calls: Arc::default(),
    })
}

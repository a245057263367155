//! The second step: a state that handlers share, errors, and a reply that is the message of the next handler.

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

/// What a customer gets.
#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    order: u64,
    text: String,
}

/// What handlers share. Each call gets a clone, so what is in it is cheap to clone.
#[derive(Clone)]
struct Bank {
    limit: i64,
}

impl Bank {
    /// A bank far away, which knows how much it lets a customer pay.
    async fn charge(&self, order: &Order) -> Result<(), String> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let (cents, limit) = (order.cents, self.limit);
        if cents > limit {
            return Err(format!("{cents} cents are above the limit of {limit}"));
        }
        Ok(())
    }
}

/// Charges an order, and answers with a receipt.
#[subscriber("orders", reply = "receipts")]
async fn confirm(order: Order, State(bank): State<Bank>) -> Result<Receipt, String> {
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

#[ruststream::app]
fn app() -> RustStream {
    RustStream::new(AppInfo::new("shop", "1.0.0"))
        .state(Bank { limit: 100_000 })
        .with_broker(SqlxBroker::sqlite("shop.db"), |broker| {
            broker.include(confirm);
            broker.include(mail);
        })
}

//! A bank makes each payment once, though brokers deliver at least once and publishers send again what was not confirmed in time.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

#[cfg(test)]
mod tests;

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ruststream::app::AppBuilder;
use ruststream::layer::{Idempotent, MemoryIdempotency};
use ruststream::message::header;
use ruststream::prelude::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Payment {
    account: String,
    cents: u64,
}

/// What was paid.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<Payment>>>);

impl Book {
    fn payments(&self) -> MutexGuard<'_, Vec<Payment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a payment, and says so. It does by `Out`, not by a reply: a handler that replies is called again for a second delivery,
/// since the layer cannot know whether the reply got through.
#[subscriber("payments")]
async fn pay(
    payment: Payment,
    State(book): State<Book>,
    context: Context<'_>,
    notices: Out<str>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    if context.attempt() == 1 && payment.account == "slow" {
        return Err("the other bank did not answer".into());
    }
    let notice = format!("{} cents paid to {}", payment.cents, payment.account);
    notices.publish("notices", notice.as_str()).await?;
    book.payments().push(payment);
    Ok(())
}

/// Tells the customer.
#[subscriber("notices")]
async fn tell(notice: String) {
    println!("{notice}");
}

fn bank(broker: MemoryBroker, book: Book) -> AppBuilder<Book> {
    // Several processes share a store that they all reach: an `IdempotencyStore` of one's own.
    let store = MemoryIdempotency::new(100_000);
    RustStream::new(AppInfo::new("bank", env!("CARGO_PKG_VERSION")))
        .state(book)
        .with_broker(broker, |broker| {
            broker.layer(Idempotent::new(store), |broker| {
                broker
                    .include(pay)
                    .workers(8)
                    .retry(Retry::fixed(Duration::from_millis(100)));
            });
            broker.include(tell);
        })
}

#[ruststream::app]
fn app() -> RustStream {
    let (broker, book) = (MemoryBroker::new(), Book::default());
    bank(broker.clone(), book.clone()).after_startup(async move |app| {
        // The publisher gives each payment its id, and sends the same id when it sends the payment again.
        for (id, account) in [
            ("a1", "ada"),
            ("b2", "slow"),
            ("a1", "ada"),
            ("b2", "slow"),
            ("c3", "grace"),
        ] {
            let account = account.to_owned();
            let payment = Payment { account, cents: 950 };
            app.publisher()
                .publish("payments", &payment)
                .header(header::MESSAGE_ID, id)
                .await?;
        }
        broker.idle("payments").await;
        broker.idle("notices").await;
        println!("5 messages, {} payments", book.payments().len());
        app.stop();
        Ok(())
    })
}

//! Parameters of one's own. Who a message is for, and whether it is still wanted, is asked in two extractors, so that no handler
//! needs to; each says by its rejection what becomes of a message without an answer.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ruststream::app::AppBuilder;
use ruststream::handler::{Call, Extract, FromState};
use ruststream::prelude::*;

/// The customers that are known.
#[derive(Clone)]
struct Customers(Arc<[&'static str]>);

/// Who a message is for, by its header `customer`.
#[derive(Debug, Clone, Copy)]
struct Customer(&'static str);

/// Why it is not known who a message is for.
#[derive(Debug, thiserror::Error)]
enum NoCustomer {
    #[error("the header `customer` is missing")]
    Missing,
    #[error("`{0}` is no customer yet")]
    Unknown(String),
}

/// In any app whose state has the customers.
impl<'a, S: Send + Sync> Extract<'a, S> for Customer
where
    Customers: FromState<S>,
{
    type Rejection = NoCustomer;

    async fn extract(call: Call<'a, S>) -> Result<Self, NoCustomer> {
        let name = call.incoming().headers().get_str("customer");
        let name = name.ok_or(NoCustomer::Missing)?;
        let Customers(known) = Customers::from_state(call.state());
        let found = known.iter().find(|known| **known == name);
        found
            .map(|known| Self(known))
            .ok_or_else(|| NoCustomer::Unknown(name.to_owned()))
    }
}

/// That a message is still wanted: its header `until`, where it has one, names a day to come.
struct Wanted;

const TODAY: &str = "2030-06-01";

/// In any app. It rejects by an outcome: what nobody wants any more is no error, and is thrown away.
impl<'a, S: Send + Sync> Extract<'a, S> for Wanted {
    type Rejection = HandlerOutcome;

    async fn extract(call: Call<'a, S>) -> Result<Self, HandlerOutcome> {
        match call.incoming().headers().get_str("until") {
            Some(day) if day < TODAY => Err(HandlerOutcome::drop()),
            _ => Ok(Self),
        }
    }
}

/// Writes a letter. Extractors are asked in their order, before the message is decoded.
#[subscriber("offers", reply = "letters")]
async fn write(offer: String, _wanted: Wanted, Customer(name): Customer) -> String {
    let letter = format!("Dear {name}, we offer you {offer}.");
    println!("{letter}");
    letter
}

fn office(broker: MemoryBroker) -> AppBuilder<Customers> {
    RustStream::new(AppInfo::new("office", env!("CARGO_PKG_VERSION")))
        .state(Customers(Arc::new(["Ada", "Grace"])))
        .with_broker(broker, |broker| {
            broker
                .include(write)
                .retry(Retry::fixed(Duration::from_millis(100)).attempts(3))
                // A rejection counts as the handler's error: a customer may become known, a header does not come by itself.
                .retry_when(|error: &NoCustomer| matches!(error, NoCustomer::Missing).then(Retry::never));
        })
}

#[ruststream::app]
fn app() -> RustStream {
    let broker = MemoryBroker::new();
    office(broker.clone()).after_startup(async move |app| {
        let offers = app.publisher();
        offers.publish("offers", "a hammer").header("customer", "Ada").await?;
        offers.publish("offers", "an anvil").header("customer", "Eve").await?;
        offers
            .publish("offers", "snow")
            .header("customer", "Ada")
            .header("until", "2030-02-28")
            .await?;
        offers.publish("offers", "a screw").await?;
        broker.idle("offers").await;
        for dead in broker.dead_letters("offers") {
            println!(
                "not written, after {} attempt(s): {}",
                dead.letter.attempts, dead.letter.error
            );
        }
        app.stop();
        Ok(())
    })
}

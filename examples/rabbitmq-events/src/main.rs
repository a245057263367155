//! Events of a shop on RabbitMQ. What happens to orders is published to a topic exchange; one queue gets all events of orders, for an
//! audit, and another only those of cancelled ones, for refunds, which are retried and in the end given up.
//!
//! `AMQP_URL=amqp://guest:guest@localhost:5672 cargo run -p rabbitmq-events` runs it. Its tests are in `tests.rs`: one without a
//! server, and one on a real one.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use ruststream::handler::Context;
use ruststream::prelude::*;
use ruststream_lapin::{Exchange, LapinBroker, LapinPublish, MessageFields, Queue};

/// Where everything that happens to orders is published.
const EVENTS: &str = "shop.events";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Event {
    order: u64,
    cents: i64,
}

/// What the service has noted and paid back.
#[derive(Debug, Clone, Default)]
struct Books {
    audit: Arc<Mutex<Vec<String>>>,
    refunds: Arc<Mutex<Vec<Event>>>,
}

/// Notes what happened, by the routing key that it was published with.
#[subscriber("shop.audit")]
async fn audit(event: Event, context: Context<'_>, State(books): State<Books>) {
    let key = context
        .fields::<MessageFields>()
        .map_or("?", MessageFields::routing_key);
    if let Ok(mut audit) = books.audit.lock() {
        audit.push(format!("{key} {}", event.order));
    }
}

/// Pays back a cancelled order, and says so to whoever wants to know.
#[subscriber("shop.refunds")]
async fn refund(event: Event, State(books): State<Books>, out: Out<Event>) -> Result<(), String> {
    if event.cents <= 0 {
        return Err(format!("{} cents cannot be paid back", event.cents));
    }
    // The destination is the routing key, where the exchange is named.
    out.publish("order.refunded", &event)
        .options(LapinPublish::to_exchange(EVENTS))
        .await
        .map_err(|error| error.to_string())?;
    if let Ok(mut refunds) = books.refunds.lock() {
        refunds.push(event);
    }
    Ok(())
}

fn service(url: &str, books: Books) -> RustStream {
    let broker = LapinBroker::new(url)
        .connection_name("rabbitmq-events")
        .declare(Exchange::topic(EVENTS));
    RustStream::new(AppInfo::new("rabbitmq-events", env!("CARGO_PKG_VERSION")))
        .state(books)
        .with_broker(broker, |broker| {
            broker
                .include(audit)
                .source(Queue::new("shop.audit").bound_to(EVENTS, "order.*"));
            broker
                .include(refund)
                .source(Queue::new("shop.refunds").bound_to(EVENTS, "order.cancelled"))
                .workers(4)
                .retry(Retry::exponential(Duration::from_millis(100)).attempts(3));
        })
        .into()
}

#[ruststream::app]
fn app() -> RustStream {
    let url = std::env::var("AMQP_URL").unwrap_or_else(|_| "amqp://guest:guest@localhost:5672".to_owned());
    service(&url, Books::default())
}

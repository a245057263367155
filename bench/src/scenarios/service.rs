//! The loop `service` of every transport: what a user writes, a handler and an app.

use ruststream::app::BrokerScope;
use ruststream::prelude::{AppInfo, RustStream, State, subscriber};
use ruststream::transport::Broker;
use tokio::task::JoinSet;

use super::work::{self, Order, Receipt};
use crate::suite::{Failed, Tally};

/// Takes one message.
#[subscriber("orders")]
pub async fn each(order: Order, State(tally): State<Tally>) {
    work::handle(order);
    tally.one();
}

/// Takes many messages.
#[subscriber("orders")]
pub async fn batch(orders: &[Order], State(tally): State<Tally>) {
    for order in orders {
        work::handle(*order);
    }
    tally.many(orders.len() as u64);
}

/// Takes one message and answers it.
#[subscriber("orders", reply = "receipts")]
pub async fn answering(order: Order, State(tally): State<Tally>) -> Receipt {
    let receipt = work::handle(order);
    tally.one();
    receipt
}

/// Runs an app until all messages are counted: from its start to the last receipt settled.
///
/// # Errors
///
/// Those of the app.
pub async fn drain<B: Broker>(
    broker: B,
    tally: Tally,
    mount: impl FnOnce(&mut BrokerScope<'_, B, Tally>),
) -> Result<(), Failed> {
    let running = RustStream::new(AppInfo::new("bench", "0"))
        .state(tally.clone())
        .with_broker(broker, mount)
        .start()
        .await?;
    tally.all().await;
    Ok(running.shutdown().await?)
}

/// Publishes from so many tasks through an app's publisher, one message after another in each.
///
/// # Errors
///
/// Those of the app and of the transport.
pub async fn publish<B: Broker>(
    broker: B,
    destination: &'static str,
    tasks: usize,
    messages: u64,
    tally: Tally,
) -> Result<(), Failed> {
    let running = RustStream::new(AppInfo::new("bench", "0"))
        .with_broker(broker, |_| {})
        .start()
        .await?;
    let mut publishing = JoinSet::new();
    for _ in 0..tasks {
        let (publisher, tally) = (running.publisher(), tally.clone());
        publishing.spawn(async move {
            let order = work::noted_order();
            for _ in 0..messages / tasks as u64 {
                publisher.publish(destination, &order).await?;
                tally.one();
            }
            Ok::<(), Failed>(())
        });
    }
    while let Some(ended) = publishing.join_next().await {
        ended??;
    }
    Ok(running.shutdown().await?)
}

//! A service that is published to while it handles.

use ruststream::memory::MemoryBroker;
use ruststream::prelude::{AppInfo, OrderBy, RustStream};

use super::QUEUE;
use crate::scenarios::{service, work};
use crate::suite::{Failed, Tally};

/// Publishes so many orders through the app, one after another, and waits until all are handled and settled.
pub(super) async fn flow(
    broker: MemoryBroker,
    tally: Tally,
    messages: u64,
    workers: usize,
    key: Option<fn(u64) -> Vec<u8>>,
) -> Result<(), Failed> {
    let app = RustStream::new(AppInfo::new("bench", "0"))
        .state(tally.clone())
        .with_broker(broker, |broker| {
            let subscription = broker.include(service::each).workers(workers);
            if key.is_some() {
                subscription.ordered_by(OrderBy::key());
            }
        });
    let running = app.start().await?;
    let publisher = running.publisher();
    let producer = tokio::spawn(async move {
        let order = work::small_order();
        for number in 0..messages {
            let publishing = publisher.publish(QUEUE, &order);
            match key {
                Some(key) => publishing.key(key(number)).await?,
                None => publishing.await?,
            }
        }
        Ok::<(), Failed>(())
    });
    producer.await??;
    tally.all().await;
    Ok(running.shutdown().await?)
}

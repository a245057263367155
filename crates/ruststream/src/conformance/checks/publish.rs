//! What a confirmation says.

use std::future::poll_fn;
use std::task::Poll;

use super::{Harness, Rig, Violation, each_once, numbered, within};
use crate::message::Outgoing;
use crate::transport::{Connection, Publish};

/// Checks that a confirmed message is stored: its publisher's connection may be gone the moment after.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn confirmed_is_stored<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    let sent = numbered(5);
    let publishing = rig.another().await?;
    publishing.publish_all(&sent).await?;
    drop(publishing);
    let deliveries = reader.collect(sent.len()).await?;
    each_once(&sent, &deliveries)?;
    reader.ack(deliveries).await
}

/// Checks that publishes at the same time, on clones of one publisher, are each confirmed and stored.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn confirms_many_at_once<H: Harness>(harness: &H) -> Result<(), Violation> {
    const AT_ONCE: usize = 8;
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    let sent = numbered(AT_ONCE);
    let publisher = rig.connection.publisher();
    let publishing = sent.iter().map(|payload| {
        let publisher = publisher.clone();
        let name = &rig.name;
        async move { publisher.publish(&[Outgoing::new(name, payload.as_bytes())]).await }
    });
    within(
        harness.deadline(),
        "publishing at the same time",
        all_at_once(publishing),
    )
    .await?;
    let deliveries = reader.collect(AT_ONCE).await?;
    each_once(&sent, &deliveries)?;
    reader.ack(deliveries).await
}

/// Polls all of them before any is waited for, and ends with the first error.
async fn all_at_once<E>(futures: impl Iterator<Item = impl Future<Output = Result<(), E>>>) -> Result<(), E> {
    let mut running: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|context| {
        let mut failure = None;
        running.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(error)) => {
                failure = Some(error);
                false
            }
            Poll::Pending => true,
        });
        match failure {
            Some(error) => Poll::Ready(Err(error)),
            None if running.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}

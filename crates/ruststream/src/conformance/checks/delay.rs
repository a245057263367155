//! What is kept back by the transport until its time.

use std::time::Duration;

use tokio::time::Instant;

use super::{Harness, Reader, Rig, Violation, ensure};
use crate::message::Outgoing;
use crate::transport::Verdict;

const DELAY: Duration = Duration::from_secs(1);
/// How much later than due a delivery may come.
const LATENESS: Duration = Duration::from_millis(500);
/// Servers keep times in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// Takes one delivery, and expects it when the delay has passed since some time between the two instants.
async fn takes_on_time<H: Harness>(reader: &mut Reader<H>, before: Instant, after: Instant) -> Result<(), Violation> {
    let deliveries = reader.take(1).await?;
    let early = DELAY.saturating_sub(before.elapsed() + ROUNDING);
    ensure!(
        early.is_zero(),
        "a message delayed by {DELAY:?} was delivered {early:?} too early"
    );
    let late = after.elapsed().saturating_sub(DELAY);
    ensure!(
        late <= LATENESS,
        "a message delayed by {DELAY:?} was delivered {late:?} late"
    );
    reader.ack(deliveries).await
}

/// Checks that a retry with a delay is not delivered early, and at most half a second late.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn retry_waits_its_delay<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.capabilities().delay() {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    rig.publish_all(&["later"]).await?;
    let deliveries = reader.take(1).await?;
    let before = Instant::now();
    reader.give_all(deliveries, Verdict::Retry { after: DELAY }).await?;
    let after = Instant::now();
    takes_on_time(&mut reader, before, after).await
}

/// Checks that a message published with a delay is not delivered early, at most half a second late, and not held up by what
/// is published after it.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn publish_waits_its_delay<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.capabilities().delay() {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    let before = Instant::now();
    let later = Outgoing::new(&rig.name, b"later").with_delay(DELAY);
    let much_later = Outgoing::new(&rig.name, b"much later").with_delay(DELAY * 100);
    rig.publish(&[later, much_later]).await?;
    let after = Instant::now();
    takes_on_time(&mut reader, before, after).await
}

/// Checks that a delay is kept by the server: the subscription that asked for it may end.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn delay_outlives_its_subscription<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !(rig.capabilities().delay() && rig.features().redelivers) {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    rig.publish_all(&["later"]).await?;
    let deliveries = reader.take(1).await?;
    let before = Instant::now();
    reader.give_all(deliveries, Verdict::Retry { after: DELAY }).await?;
    let after = Instant::now();
    reader.close().await?;
    let mut reader = rig.open().await?;
    takes_on_time(&mut reader, before, after).await
}

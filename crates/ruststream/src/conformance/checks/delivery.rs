//! From publish to fetch.

use tokio::time::timeout;

use super::{Harness, Rig, Tally, Violation, ensure, failed, numbered, payloads};
use crate::transport::Fetch;

/// Checks that each published message is delivered once, and as the first attempt.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn delivers_everything_once<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    let sent = numbered(100);
    for call in sent.chunks(7) {
        rig.publish_all(call).await?;
    }
    reader.drain(&mut Tally::of(&sent), 16).await?;
    reader.stays_quiet("everything was acked").await
}

/// Checks that one consumer gets messages in the order of their publishing, within a call and across calls.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn keeps_the_order<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.features().orders {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    let sent = numbered(9);
    for call in sent.chunks(3) {
        rig.publish_all(call).await?;
    }
    let mut delivered = Vec::new();
    while delivered.len() < sent.len() {
        let deliveries = reader.take(4).await?;
        delivered.append(&mut payloads(&deliveries));
        reader.ack(deliveries).await?;
    }
    ensure!(
        sent == delivered,
        "published in the order {sent:?}, delivered as {delivered:?}"
    );
    Ok(())
}

/// Checks that a fetch brings no more than it has room for, and leaves the rest to be fetched.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn respects_room<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    rig.publish_all(&numbered(9)).await?;
    let mut seen = 0;
    for room in [1, 3, 2, 1, 2, 1, 1, 1, 1] {
        if seen == 9 {
            break;
        }
        let deliveries = reader.take(room).await?;
        let brought = deliveries.len();
        ensure!(brought <= room, "a fetch with room for {room} brought {brought}");
        seen += brought;
        reader.ack(deliveries).await?;
    }
    Ok(())
}

/// Checks that a fetch waits while nothing is there, rather than return with nothing, and wakes when a message comes.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn waits_for_messages<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    let mut taken = Vec::new();
    if let Ok(outcome) = timeout(reader.quiet, reader.fetch.fetch(8, &mut taken)).await {
        outcome.map_err(|error| failed("fetch from an empty queue", &error))?;
        return Err(Violation::new(format!(
            "a fetch from an empty queue returned with {} deliveries; it has to wait",
            taken.len(),
        )));
    }
    let publishing = async {
        tokio::time::sleep(reader.quiet).await;
        rig.publish_all(&["wake up"]).await
    };
    let fetching = timeout(reader.deadline, reader.fetch.fetch(8, &mut taken));
    let (published, fetched) = tokio::join!(publishing, fetching);
    published?;
    match fetched {
        Ok(outcome) => outcome.map_err(|error| failed("fetch", &error))?,
        Err(_) => return Err(Violation::new("a fetch that waited was not woken by a message")),
    }
    ensure!(taken.len() == 1, "one message came, and {} were brought", taken.len());
    reader.ack(taken).await
}

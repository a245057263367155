//! Dead letters that the transport itself keeps.

use std::time::SystemTime;

use super::{Harness, Rig, Violation, ensure, failed, preview};
use crate::transport::{DeadLetter, DeadReason, Verdict};

const PAYLOAD: &[u8] = b"\xff poison \0";

fn letter(source: &str) -> Verdict {
    Verdict::DeadLetter(Box::new(DeadLetter {
        reason: DeadReason::Undecodable,
        error: "expected `{` at line 1 \u{2620}".to_owned(),
        attempts: 1,
        source: source.to_owned(),
        at: SystemTime::now(),
    }))
}

/// Checks that a dead letter leaves its queue for good.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn dead_letter_is_never_delivered<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.capabilities().dead_letters() {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    rig.publish_all(&[PAYLOAD]).await?;
    let deliveries = reader.take(1).await?;
    reader.give_all(deliveries, letter(&rig.name)).await?;
    reader.stays_quiet("it is a dead letter").await?;
    reader.close().await?;
    rig.open().await?.stays_quiet("it is a dead letter").await
}

/// Checks that a dead letter is kept with its bytes untouched.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn dead_letter_is_kept<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.capabilities().dead_letters() {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    rig.publish_all(&[PAYLOAD]).await?;
    let deliveries = reader.take(1).await?;
    reader.give_all(deliveries, letter(&rig.name)).await?;
    let kept = harness.dead_letters(&rig.name).await;
    if let Some(kept) = kept.map_err(|error| failed("reading the dead letters", &error))? {
        let shown: Vec<_> = kept.iter().map(|payload| preview(payload)).collect();
        ensure!(
            kept == [PAYLOAD],
            "{} became a dead letter, and kept are {shown:?}",
            preview(PAYLOAD)
        );
    }
    Ok(())
}

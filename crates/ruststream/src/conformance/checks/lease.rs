//! Leases: kept while renewed, harmless when lost.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Harness, Rig, Violation, ensure, text, within};
use crate::transport::{Delivery, Settle, Settled, Verdict};

const LEASE: Duration = Duration::from_secs(1);

/// Checks that a receipt whose lease is lost is counted and settles nothing: the message belongs to who has it now.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn stale_receipts_are_harmless<H: Harness>(harness: &H) -> Result<(), Violation> {
    let Some(rig) = Rig::leased(harness, LEASE).await? else {
        return Ok(());
    };
    let other = rig.another().await?;
    let mut slow = rig.open().await?;
    let mut next = other.open().await?;
    rig.publish_all(&["contended"]).await?;
    let late = slow.take(1).await?;
    let owned = next.take(1).await?;

    let finished = late.into_iter().map(|delivery| (delivery.into_receipt(), Verdict::Ack));
    let Settled { stale } = slow.give(finished.collect()).await?;
    ensure!(
        stale == 1,
        "an ack after the lease was lost was counted {stale} times as stale, and has to be once"
    );
    // If the late ack had settled it, this retry would bring nothing back.
    next.give_all(owned, Verdict::Retry { after: Duration::ZERO }).await?;
    let again = next
        .take_again("the message was retried by its owner after the late ack")
        .await?;
    next.ack(again).await
}

/// Checks that a renewed lease holds, and that its receipt then settles.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn renew_keeps_a_lease<H: Harness>(harness: &H) -> Result<(), Violation> {
    let Some(rig) = Rig::leased(harness, LEASE).await? else {
        return Ok(());
    };
    let other = rig.another().await?;
    let mut slow = rig.open().await?;
    let mut next = other.open().await?;
    rig.publish_all(&["held"]).await?;
    let held = slow.take(1).await?;
    let end = Instant::now() + LEASE * 3;
    let renewing = async {
        let mut lost = Vec::new();
        while Instant::now() < end {
            sleep(LEASE / 4).await;
            within(harness.deadline(), "renew", slow.settle.renew(&mut lost)).await?;
        }
        Ok(lost)
    };
    let (lost, quiet) = tokio::join!(renewing, next.stays_quiet_for(LEASE * 3, "its lease is renewed"));
    quiet?;
    let lost: Vec<u64> = lost?;
    ensure!(lost.is_empty(), "renew reported a lost lease that was held");
    slow.ack(held).await
}

/// Checks that renew names the deliveries whose leases are lost, and only those.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn renew_reports_lost_leases<H: Harness>(harness: &H) -> Result<(), Violation> {
    let Some(rig) = Rig::leased(harness, LEASE).await? else {
        return Ok(());
    };
    let other = rig.another().await?;
    let mut slow = rig.open().await?;
    let mut next = other.open().await?;
    rig.publish_all(&["lost"]).await?;
    let late = slow.take(1).await?;
    let owned = next.take(1).await?;
    let mut lost = Vec::new();
    within(harness.deadline(), "renew", slow.settle.renew(&mut lost)).await?;
    ensure!(
        lost == [late[0].lease_id()],
        "the lease {} of {:?} is lost, and renew reported {lost:?}",
        late[0].lease_id(),
        text(&late[0]),
    );
    next.ack(owned).await
}

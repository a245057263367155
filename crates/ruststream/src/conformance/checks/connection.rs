//! The life of a connection.

use std::collections::BTreeSet;

use super::{Harness, Rig, Violation, ensure, numbered, text, within};
use crate::transport::{Connection, Delivery, Verdict};

/// Checks that a live connection answers a ping.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn answers_pings<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    within(harness.deadline(), "ping", rig.connection.ping()).await
}

/// Checks that after a cut the same halves and publishers work again, that what was in hand comes again, and that receipts of
/// before the cut are harmless.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn reconnects_after_a_cut<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    let sent = numbered(6);
    rig.publish_all(&sent).await?;
    let in_hand = reader.collect(2).await?;
    if !harness.cut().await {
        return reader.ack(in_hand).await;
    }
    let mut missing: BTreeSet<_> = sent.into_iter().collect();
    for delivery in in_hand {
        let payload = text(&delivery);
        // Not stale: the cut did not reach it in time, and it is settled.
        if reader.give(vec![(delivery.into_receipt(), Verdict::Ack)]).await?.stale == 0 {
            missing.remove(&payload);
        }
    }
    rig.publish_in_the_end(b"after the cut").await?;
    missing.insert("after the cut".to_owned());
    while !missing.is_empty() {
        let Ok(deliveries) = reader.take(1).await else {
            return Err(Violation::new(format!("never delivered after a cut: {missing:?}")));
        };
        for delivery in deliveries {
            let payload = text(&delivery);
            // Stale: it was taken before the cut and handed out after; it comes once more.
            if reader.give(vec![(delivery.into_receipt(), Verdict::Ack)]).await?.stale == 0 {
                let expected = missing.remove(&payload);
                ensure!(expected, "{payload} was settled, and came again after a cut");
            }
        }
    }
    within(harness.deadline(), "ping", rig.connection.ping()).await
}

//! What becomes of a delivery.

use std::time::Duration;

use super::{Harness, Rig, Violation, each_once, ensure, numbered, payloads, text};
use crate::transport::{Connection, Delivery, Verdict};

const AT_ONCE: Verdict = Verdict::Retry { after: Duration::ZERO };

/// Checks that an acked message is never delivered again, to a later subscription neither.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn acked_is_gone<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    rig.publish_all(&numbered(5)).await?;
    let deliveries = reader.collect(5).await?;
    reader.ack(deliveries).await?;
    reader.close().await?;
    rig.open().await?.stays_quiet("it was acked").await
}

/// Checks that what a consumer took and never settled is delivered again after its end, with the attempt counted.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn unsettled_comes_again<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = match Rig::leased(harness, Duration::from_secs(1)).await? {
        Some(rig) => rig,
        None => Rig::new(harness).await?,
    };
    if !rig.features().redelivers {
        return Ok(());
    }
    let dying = rig.another().await?;
    let mut reader = dying.open().await?;
    let sent = numbered(5);
    rig.publish_all(&sent).await?;
    let mut deliveries = reader.collect(5).await?;
    let unsettled = deliveries.split_off(2);
    let expected = payloads(&unsettled);
    reader.ack(deliveries).await?;
    drop((unsettled, reader));
    dying.connection.close().await;
    drop(dying);

    let mut reader = rig.open().await?;
    let again = reader.collect(3).await?;
    each_once(&expected, &again)?;
    for delivery in &again {
        let attempt = delivery.attempt();
        ensure!(
            attempt == 2 || !rig.capabilities().attempts(),
            "{} was taken once, never settled, and came again as attempt {attempt}",
            text(delivery),
        );
    }
    reader.ack(again).await?;
    reader.stays_quiet("everything was acked").await
}

/// Checks that a released message is delivered again as if for the first time.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn released_comes_again_uncounted<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.features().returns {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    rig.publish_all(&["release me"]).await?;
    let mut deliveries = reader.take(1).await?;
    for _ in 0..3 {
        reader.give_all(deliveries, Verdict::Release).await?;
        deliveries = reader.take_again("the message was released").await?;
    }
    let attempt = deliveries[0].attempt();
    ensure!(
        attempt == 1 || !rig.capabilities().attempts(),
        "a message that was only ever released came as attempt {attempt}"
    );
    reader.ack(deliveries).await?;
    reader.stays_quiet("it was acked").await
}

/// Checks that released messages come again before those that were behind them.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn released_keeps_its_place<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !(rig.features().returns && rig.features().places) {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    let sent = numbered(6);
    rig.publish_all(&sent).await?;
    let mut deliveries = reader.collect(4).await?;
    let later = deliveries.split_off(2);
    reader.give_all(later, Verdict::Release).await?;
    reader.give_all(deliveries, Verdict::Release).await?;
    let again = reader.collect(6).await?;
    let order = payloads(&again);
    ensure!(
        order == sent,
        "published as {sent:?}, four released, then delivered as {order:?}"
    );
    reader.ack(again).await
}

/// Checks that a retried message is delivered again, with each attempt counted.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn retried_comes_again_counted<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.features().returns {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    rig.publish_all(&["try me"]).await?;
    let mut deliveries = reader.take(1).await?;
    for expected in 1..=3 {
        let attempt = deliveries[0].attempt();
        ensure!(
            attempt == expected || !rig.capabilities().attempts(),
            "delivery {expected} of a retried message came as attempt {attempt}"
        );
        reader.give_all(deliveries, AT_ONCE).await?;
        deliveries = reader.take_again("the message was retried").await?;
    }
    reader.ack(deliveries).await?;
    reader.stays_quiet("it was acked").await
}

/// Checks that each receipt of one settle call gets its own verdict.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn mixed_verdicts_settle_each<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.features().returns {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    rig.publish_all(&numbered(6)).await?;
    let deliveries = reader.collect(6).await?;
    let mut expected = Vec::new();
    let mut finished = Vec::new();
    for (delivery, verdict) in deliveries.into_iter().zip([
        Verdict::Ack,
        AT_ONCE,
        Verdict::Release,
        Verdict::Ack,
        Verdict::Release,
        AT_ONCE,
    ]) {
        if verdict != Verdict::Ack {
            expected.push(text(&delivery));
        }
        finished.push((delivery.into_receipt(), verdict));
    }
    reader.give(finished).await?;
    let again = reader.collect(expected.len()).await?;
    each_once(&expected, &again)?;
    reader.ack(again).await?;
    reader.stays_quiet("everything was acked").await
}

/// Checks that a closed subscription gives back at once and uncounted what it took and did not hand out, and that what it
/// handed out can still be settled.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn close_gives_back<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.features().redelivers {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    let sent = numbered(8);
    rig.publish_all(&sent).await?;
    let in_hand = reader.take(2).await?;
    let settled = payloads(&in_hand);
    let super::Reader {
        fetch,
        settle,
        deadline,
        quiet,
    } = reader;
    super::within(deadline, "close", crate::transport::Fetch::close(fetch)).await?;

    let mut other = rig.open().await?;
    // At once: a lease's end is too late.
    other.deadline = harness.deadline();
    let expected: Vec<_> = sent.into_iter().filter(|one| !settled.contains(one)).collect();
    let rest = other.collect(expected.len()).await?;
    each_once(&expected, &rest)?;
    for delivery in &rest {
        let attempt = delivery.attempt();
        ensure!(
            attempt == 1 || !rig.capabilities().attempts(),
            "{} was never handed out, and came from the closed subscription as attempt {attempt}",
            text(delivery),
        );
    }
    other.ack(rest).await?;
    let mut closed = super::Reader::<H> {
        fetch: other.fetch,
        settle,
        deadline,
        quiet,
    };
    closed.ack(in_hand).await?;
    closed.stays_quiet("everything was acked").await
}

//! Dead letters that the transport itself keeps.

use std::time::SystemTime;

use super::{Harness, Rig, Violation, ensure, failed, numbered, preview, within};
use crate::transport::{DeadLetter, DeadReason, Delivery, ReplayAttempts, Source, Verdict};

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

/// Checks that dead letters can be listed, put back and thrown away, one by one, as the command `dead-letters` does.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn dead_letters_can_be_walked_through<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.capabilities().dead_letters() {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    rig.publish_all(&numbered(5)).await?;
    let deliveries = reader.collect(5).await?;
    reader.give_all(deliveries, letter(&rig.name)).await?;
    let walk = || {
        within(
            harness.deadline(),
            "dead_letters",
            rig.source.dead_letters(&rig.connection),
        )
    };
    let Some(mut letters) = walk().await? else {
        return Ok(());
    };
    // Three are put back, of two pages; one is thrown away; one stays.
    let first = within(harness.deadline(), "next", letters.next(3)).await?;
    let seen: Vec<_> = first.iter().map(|letter| preview(&letter.payload)).collect();
    ensure!(
        first.len() == 3,
        "five letters were there, and the first page of three has {seen:?}"
    );
    for letter in &first {
        let history = (letter.reason.as_str(), letter.attempts, letter.source.as_str());
        let kept = ("undecodable", 1, rig.name.as_str());
        ensure!(
            history == kept,
            "of the history {kept:?} of a letter is left {history:?}"
        );
    }
    let back: Vec<String> = first[..2].iter().map(|letter| letter.id.clone()).collect();
    let count = within(
        harness.deadline(),
        "replay",
        letters.replay(&back, ReplayAttempts::Reset),
    )
    .await?;
    ensure!(count == 2, "two letters were put back, and {count} were counted");
    let second = within(harness.deadline(), "next", letters.next(3)).await?;
    let [fourth, fifth] = &second[..] else {
        let seen: Vec<_> = second.iter().map(|letter| preview(&letter.payload)).collect();
        return Err(Violation::new(format!(
            "two letters were left, and the second page has {seen:?}"
        )));
    };
    let mut expected = [&first[0], &first[1], fifth].map(|letter| preview(&letter.payload));
    expected.sort();
    let kept = preview(&first[2].payload);
    let (fourth, fifth) = ([fourth.id.clone()], [fifth.id.clone()]);
    let count = within(harness.deadline(), "purge", letters.purge(&fourth)).await?;
    ensure!(count == 1, "one letter was thrown away, and {count} were counted");
    let count = within(
        harness.deadline(),
        "replay",
        letters.replay(&fifth, ReplayAttempts::Reset),
    )
    .await?;
    ensure!(count == 1, "one letter was put back, and {count} were counted");
    let end = within(harness.deadline(), "next", letters.next(3)).await?;
    ensure!(
        end.is_empty(),
        "the walk was at its end, and {} letters came",
        end.len()
    );
    within(harness.deadline(), "close of the walk", letters.close()).await?;

    let again = reader.collect(3).await?;
    let mut payloads: Vec<_> = again.iter().map(|delivery| preview(delivery.payload())).collect();
    payloads.sort();
    ensure!(
        payloads == expected,
        "put back were {expected:?}, and delivered {payloads:?}"
    );
    for delivery in &again {
        let attempt = delivery.attempt();
        ensure!(
            attempt == 1,
            "a letter was put back as new, and is at attempt {attempt}"
        );
    }
    reader.ack(again).await?;
    if let Some(mut letters) = walk().await? {
        let left = within(harness.deadline(), "next", letters.next(10)).await?;
        let left: Vec<_> = left.iter().map(|letter| preview(&letter.payload)).collect();
        ensure!(left == [kept], "one letter stays, and there are {left:?}");
        within(harness.deadline(), "close of the walk", letters.close()).await?;
    }
    Ok(())
}

//! Batches.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Book, Harness, ROUNDING, Rig, Run, Service, Violation, attempts_grow, ensure, failed_with, finds_nothing, numbered,
    panics_if,
};
use crate::handler::{BatchOutcome, Outcome};
use crate::policy::Retry;

/// How many messages each call had.
fn sizes(runs: &[Run]) -> Vec<usize> {
    let calls = runs.chunk_by(|one, next| one.call == next.call);
    calls.map(<[Run]>::len).collect()
}

/// Checks that a batch is handled as soon as it is full, however old it may grow, and when it is old enough, however full.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_batches_by_count_and_age<H: Harness>(harness: &H) -> Result<(), Violation> {
    const AGE: Duration = Duration::from_millis(200);
    let rig = Rig::new(harness).await?;
    let acks = |book: &Book| book.batches(|_| async { BatchOutcome::All(Outcome::ACK) });
    let by_count = Book::new();
    let service = Service::start(&rig, acks(&by_count), |subscription| {
        subscription.batch(10).batch_age(rig.deadline() * 2);
    })
    .await?;
    rig.publish_all(&numbered(20)).await?;
    let filled = by_count.ended(20, rig.deadline()).await;
    filled.map_err(|violation| Violation::new(format!("of batches of ten: {violation}")))?;
    service.stop().await?;
    let calls = sizes(&by_count.runs());
    ensure!(
        calls == [10, 10],
        "20 messages were to be two batches of ten, and were {calls:?}"
    );

    let by_age = Book::new();
    let service = Service::start(&rig, acks(&by_age), |subscription| {
        subscription.batch(10).batch_age(AGE);
    })
    .await?;
    let before = Instant::now();
    let few = numbered(3);
    rig.publish_all(&few).await?;
    by_age.each_once(&few, rig.deadline()).await?;
    service.stop().await?;
    let runs = by_age.runs();
    let calls = sizes(&runs);
    ensure!(
        calls == [3],
        "three messages were to be one batch when the first had waited {AGE:?}, and were {calls:?}"
    );
    let waited = runs[0].began - before;
    ensure!(
        waited + ROUNDING >= AGE,
        "a batch that was not full was handled after {waited:?}, and was to wait {AGE:?} for others"
    );
    finds_nothing(&rig, "everything was handled").await
}

/// Checks that what fails in a batch is retried alone: those beside it are acked once, and where a panic fails all of a
/// batch, its innocent messages then succeed without the guilty one.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_retries_alone_what_failed_in_a_batch<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let place = Rig::named(harness, harness.name()).await?;
    if !attempts_grow(&rig) {
        return Ok(());
    }
    let mut reader = place.open().await?;
    let book = Book::new();
    let handler = book.batches(|runs| async move {
        panics_if(runs.iter().any(|run| run.text == "guilty"));
        let outcome = |run: &Run| {
            if run.text.starts_with("failing") && run.attempt == 1 {
                failed_with("the check lets this attempt fail")
            } else {
                Outcome::ACK
            }
        };
        BatchOutcome::Each(runs.iter().map(outcome).collect())
    });
    let service = Service::start(&rig, handler, |subscription| {
        subscription
            .batch(10)
            .batch_age(rig.deadline() * 2)
            .retry(Retry::fixed(Duration::from_millis(10)).attempts(2))
            .dead_letter(&place.name);
    })
    .await?;
    let mut by_outcome = numbered(10);
    "failing 7".clone_into(&mut by_outcome[6]);
    "failing 9".clone_into(&mut by_outcome[8]);
    rig.publish_all(&by_outcome).await?;
    book.ended(12, rig.deadline()).await?;
    let mut by_panic: Vec<_> = (0..10).map(|number| format!("innocent {number}")).collect();
    "guilty".clone_into(&mut by_panic[4]);
    rig.publish_all(&by_panic).await?;
    book.ended(12 + 9, rig.deadline()).await?;
    let dead = reader.take(1).await;
    let dead = dead.map_err(|violation| Violation::new(format!("where the guilty one is given up: {violation}")))?;
    reader.ack(dead).await?;
    service.stop().await?;

    let all = book.runs();
    for text in by_outcome.iter().chain(&by_panic) {
        let runs = book.runs_of(text);
        let again = !text.starts_with("message");
        let attempts: Vec<_> = runs.iter().map(|run| run.attempt).collect();
        let expected: &[u32] = if again { &[1, 2] } else { &[1] };
        ensure!(
            attempts == expected,
            "{text} was to be handled as the attempts {expected:?}, and was as {attempts:?}"
        );
        if again {
            let beside = all.iter().filter(|run| run.call == runs[1].call).count() - 1;
            ensure!(
                beside == 0,
                "{text} failed in a batch, and was retried with {beside} others"
            );
        }
    }
    finds_nothing(&rig, "everything was handled or given up").await
}

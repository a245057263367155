//! Handlers that fail.

use std::time::Duration;

use super::{
    Book, Harness, PANIC, ROUNDING, Rig, Run, Service, Violation, attempts_grow, ensure, failed_with, finds_nothing,
    numbered, panics_if,
};
use crate::handler::Outcome;
use crate::message::header;
use crate::policy::Retry;
use crate::transport::Delivery;

const DELAY: Duration = Duration::from_millis(150);

/// Fails the first attempts, so many of them.
fn fails(run: &Run, attempts: u32) -> Outcome {
    if run.attempt <= attempts {
        failed_with("the check lets this attempt fail")
    } else {
        Outcome::ACK
    }
}

/// Expects the attempts 1 to `count`, each no earlier than the delay after the one before.
fn grew(runs: &[Run], count: u32, kept: bool) -> Result<(), Violation> {
    let attempts: Vec<_> = runs.iter().map(|run| run.attempt).collect();
    let expected: Vec<_> = (1..=count).collect();
    ensure!(
        attempts == expected,
        "a message was to be handled as the attempts {expected:?}, and was as {attempts:?}"
    );
    for pair in runs.windows(2) {
        let waited = pair[1].began - pair[0].began;
        ensure!(
            !kept || waited + ROUNDING >= DELAY,
            "attempt {} came {waited:?} after the one before, and its delay is {DELAY:?}",
            pair[1].attempt,
        );
    }
    Ok(())
}

/// Checks that what fails is handled again after the delay of its policy, each attempt counted, until it succeeds.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_retries_by_policy<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !attempts_grow(&rig) {
        return Ok(());
    }
    let book = Book::new();
    let service = Service::start(
        &rig,
        book.handler(|run| async move { fails(&run, 2) }),
        |subscription| {
            subscription.workers(2).retry(Retry::fixed(DELAY).attempts(3));
        },
    )
    .await?;
    let sent = numbered(5);
    rig.publish_all(&sent).await?;
    book.ended(sent.len() * 3, rig.deadline()).await?;
    service.stop().await?;
    for text in &sent {
        grew(&book.runs_of(text), 3, true)?;
    }
    finds_nothing(&rig, "every message succeeded in the end").await
}

/// Checks that retries and their delays outlive the app: over two restarts a message is handled exactly as often as its
/// policy says, and then given up.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_retries_outlive_it<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let place = Rig::named(harness, harness.name()).await?;
    if !(rig.capabilities().attempts() && rig.features().redelivers) {
        return Ok(());
    }
    let mut reader = place.open().await?;
    rig.publish_all(&["hopeless"]).await?;
    let book = Book::new();
    for ended in [1, 2, 4] {
        let service = Service::start(
            &rig,
            book.handler(|run| async move { fails(&run, u32::MAX) }),
            |subscription| {
                let retry = Retry::fixed(DELAY).attempts(4);
                subscription.retry(retry).dead_letter(&place.name);
            },
        )
        .await?;
        book.ended(ended, rig.deadline()).await?;
        service.stop().await?;
    }
    grew(&book.runs(), 4, rig.capabilities().delay())?;
    let dead = reader.take(1).await;
    let dead =
        dead.map_err(|violation| Violation::new(format!("after its last attempt, in its place: {violation}")))?;
    reader.ack(dead).await?;
    finds_nothing(&rig, "the message was given up").await
}

/// Checks that a panic is a failure like any other: it is retried, given up with its text, and no worker ends by it.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_survives_panics<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let place = Rig::named(harness, harness.name()).await?;
    if !attempts_grow(&rig) {
        return Ok(());
    }
    let mut reader = place.open().await?;
    let book = Book::new();
    let panicking = book.handler(|run| async move {
        let hopeless = run.text == "hopeless";
        let at_first = run.text.starts_with("at first") && run.attempt == 1;
        panics_if(hopeless || at_first);
        Outcome::ACK
    });
    let service = Service::start(&rig, panicking, |subscription| {
        let retry = Retry::fixed(Duration::from_millis(10)).attempts(2);
        subscription.workers(2).retry(retry).dead_letter(&place.name);
    })
    .await?;
    let at_first: Vec<_> = (0..3).map(|number| format!("at first {number}")).collect();
    rig.publish_all(&at_first).await?;
    rig.publish_all(&["hopeless"]).await?;
    let good = numbered(50);
    rig.publish_all(&good).await?;

    book.ended(good.len() + at_first.len(), rig.deadline()).await?;
    let dead = reader.take(1).await;
    let dead =
        dead.map_err(|violation| Violation::new(format!("where the one that panics is given up: {violation}")))?;
    if rig.features().headers {
        let text = dead[0].headers().get_str(header::DEAD_ERROR).unwrap_or_default();
        ensure!(
            text.contains(PANIC),
            "the text of a panic is not with the dead letter: {text:?}"
        );
    }
    reader.ack(dead).await?;
    service
        .fares("at rest with two workers", |health| {
            health.workers == 2 && health.in_hand == 0
        })
        .await?;
    service.stop().await?;
    for (text, attempts) in at_first.iter().map(|text| (text.as_str(), 2)).chain([("hopeless", 2)]) {
        let runs = book.runs_of(text).len();
        ensure!(
            runs == attempts,
            "{text}, which panics, was to be handled {attempts} times, and was {runs} times"
        );
    }
    for text in &good {
        let runs = book.runs_of(text).len();
        ensure!(
            runs == 1,
            "{text}, beside messages that panic, was handled {runs} times"
        );
    }
    finds_nothing(&rig, "everything was handled or given up").await
}

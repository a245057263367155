//! The end of an app: a shutdown, and a crash.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Book, Harness, Pages, Rig, STOPPING, Service, Violation, ensure, finds_nothing, numbered};
use crate::handler::Outcome;

/// Checks that a shutdown lets short work finish, gives back at once what was not begun, gives back the rest when the grace
/// period ends, counts no attempt for what it gives back, and takes no longer.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_drains_before_it_stops<H: Harness>(harness: &H) -> Result<(), Violation> {
    const GRACE: Duration = Duration::from_millis(600);
    const SHORT: usize = 3;
    const BEGUN: usize = 6;
    let rig = Rig::new(harness).await?;
    let features = rig.features();
    if !(features.redelivers && features.returns && features.shares) {
        return Ok(());
    }
    let sent = numbered(20);
    rig.publish_all(&sent).await?;
    let first = Book::new();
    let stopping = Arc::new(CancellationToken::new());
    let begun = Arc::new(AtomicUsize::new(0));
    let handler = {
        let stopping = stopping.clone();
        first.handler(move |_| {
            let (stopping, place) = (stopping.clone(), begun.fetch_add(1, Ordering::Relaxed));
            async move {
                if place >= SHORT {
                    return pending().await;
                }
                stopping.cancelled().await;
                sleep(Duration::from_millis(20)).await;
                Outcome::ACK
            }
        })
    };
    let service = Service::with_grace(&rig, GRACE, handler, |subscription| {
        subscription.workers(BEGUN).prefetch(16);
    })
    .await?;
    first.begun(BEGUN, rig.deadline()).await?;
    service
        .fares("holding what waits for its workers", |health| health.in_hand >= 12)
        .await?;

    let second = Book::new();
    let next = Service::start(&rig, second.acks(), |subscription| {
        subscription.workers(2);
    })
    .await?;
    let stopped_at = Instant::now();
    stopping.cancel();
    let unbegun = sent.len() - BEGUN;
    let unbegun_at_once = async {
        let all = second.waits(GRACE, |pages| pages.ended >= unbegun).await;
        (all, second.runs().len())
    };
    let (stopped, (at_once, taken)) = tokio::join!(service.stop(), unbegun_at_once);
    let took = stopped?;
    ensure!(
        took <= GRACE + STOPPING,
        "a shutdown with a grace period of {GRACE:?} took {took:?}"
    );
    ensure!(
        at_once,
        "{unbegun} messages had not been begun when the shutdown began, and within {GRACE:?} the next app had {taken} of them"
    );
    second.ended(sent.len() - SHORT, rig.deadline()).await?;
    let released = stopped_at.elapsed();
    ensure!(
        released <= GRACE + STOPPING * 2,
        "what a shutdown interrupted after {GRACE:?} came to the next app after {released:?}"
    );
    next.stop().await?;

    let counted = rig.capabilities().attempts();
    for text in &sent {
        let (before, after) = (first.runs_of(text), second.runs_of(text));
        let finished = before.iter().any(|run| run.ended.is_some());
        ensure!(
            after.len() == usize::from(!finished),
            "{text} was {} by the app that stopped, and handled {} times by the next",
            if finished { "finished" } else { "not finished" },
            after.len(),
        );
        for run in after.iter().filter(|_| counted) {
            ensure!(
                run.attempt == 1,
                "{text} was given back by a shutdown, and came to the next app as attempt {}",
                run.attempt
            );
        }
    }
    finds_nothing(&rig, "everything was handled").await
}

/// Checks that an app which dies loses nothing: what it had in hand comes again with its attempt counted, what it settled does
/// not.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_killed_loses_nothing<H: Harness>(harness: &H) -> Result<(), Violation> {
    const HUNG: usize = 4;
    let rig = match Rig::leased(harness, Duration::from_millis(500)).await? {
        Some(rig) => rig,
        None => Rig::new(harness).await?,
    };
    if !rig.features().redelivers {
        return Ok(());
    }
    let settled = numbered(5);
    let hung: Vec<_> = (0..HUNG).map(|number| format!("hung {number}")).collect();
    let waiting: Vec<_> = (0..5).map(|number| format!("waiting {number}")).collect();
    let first = Book::new();
    let hanging = first.handler(|run| async move {
        if run.text.starts_with("hung") {
            return pending().await;
        }
        Outcome::ACK
    });
    let service = Service::start(&rig, hanging, |subscription| {
        subscription.workers(HUNG).prefetch(HUNG);
    })
    .await?;
    rig.publish_all(&settled).await?;
    first.each_once(&settled, rig.deadline()).await?;
    service.fares("at rest", |health| health.in_hand == 0).await?;
    rig.publish_all(&hung).await?;
    let all_hang = |pages: &Pages| pages.runs.len() == settled.len() + HUNG;
    ensure!(
        first.waits(rig.deadline(), all_hang).await,
        "{HUNG} workers were to have {HUNG} messages, and had {}",
        first.runs().len() - settled.len(),
    );
    rig.publish_all(&waiting).await?;
    service.kill().await;

    let second = Book::new();
    let service = Service::start(&rig, second.acks(), |subscription| {
        subscription.workers(2);
    })
    .await?;
    let expected: Vec<_> = hung.iter().chain(&waiting).cloned().collect();
    let recovered = second.each_once(&expected, rig.deadline()).await;
    recovered.map_err(|violation| Violation::new(format!("after the death of an app, by the next: {violation}")))?;
    service.stop().await?;
    for run in second.runs() {
        let expected = if run.text.starts_with("hung") { 2 } else { 1 };
        ensure!(
            run.attempt == expected || !rig.capabilities().attempts(),
            "{} came to the next app as attempt {}, and was to be {expected}",
            run.text,
            run.attempt,
        );
    }
    finds_nothing(&rig, "everything was handled").await
}

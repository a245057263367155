//! What an app says of itself, and whether it is true.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Book, Harness, Rig, Service, Violation, ensure, numbered};
use crate::app::SubscriptionState;

/// Checks that a paused subscription handles nothing, says so, and handles all that waits once it is resumed.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_pauses_and_resumes<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let book = Book::new();
    let service = Service::start(&rig, book.acks(), |subscription| {
        subscription.workers(2);
    })
    .await?;
    let mut sent = numbered(3);
    rig.publish_all(&sent).await?;
    book.each_once(&sent, rig.deadline()).await?;

    let handle = service.handle();
    ensure!(
        handle.pause(&rig.name),
        "an app has no subscription {} to pause",
        rig.name
    );
    service
        .fares("paused", |health| health.state == SubscriptionState::Paused)
        .await?;
    // The fetch that waited when the pause began ends in a moment of its own.
    sleep(Duration::from_millis(20)).await;
    let later: Vec<_> = (0..5).map(|number| format!("later {number}")).collect();
    rig.publish_all(&later).await?;
    sleep(harness.quiet()).await;
    let handled = book.runs().len() - sent.len();
    ensure!(handled == 0, "a paused subscription handled {handled} messages");

    handle.resume(&rig.name);
    sent.extend(later);
    let resumed = book.each_once(&sent, rig.deadline()).await;
    resumed.map_err(|violation| Violation::new(format!("after a pause: {violation}")))?;
    service
        .fares("running", |health| health.state == SubscriptionState::Running)
        .await?;
    service.stop().await.map(drop)
}

/// Checks that after a cut an app handles messages again without a restart, and that its health tells the truth meanwhile: it
/// is not green for long while a message waits, and green when it works.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_works_again_after_a_cut<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let book = Book::new();
    let service = Service::start(&rig, book.acks(), |_| {}).await?;
    rig.publish_all(&["before the cut"]).await?;
    book.ended(1, rig.deadline()).await?;
    service
        .fares("running", |health| health.state == SubscriptionState::Running)
        .await?;
    if !harness.cut().await {
        return service.stop().await.map(drop);
    }
    let greenest = harness.deadline() / 4;
    let mut was_degraded = service.health()?.state == SubscriptionState::Degraded;
    let cut = Instant::now();
    let handled = {
        let canary = async {
            rig.publish_in_the_end(b"after the cut").await?;
            let is_handled = book.waits(rig.deadline(), |pages| {
                pages
                    .runs
                    .iter()
                    .any(|run| run.text == "after the cut" && run.ended.is_some())
            });
            ensure!(is_handled.await, "a message published after a cut was never handled");
            Ok(cut.elapsed())
        };
        let watching = async {
            let mut green_since = Instant::now();
            loop {
                if service.health()?.state == SubscriptionState::Running {
                    ensure!(
                        green_since.elapsed() <= greenest,
                        "the health said for {greenest:?} after a cut that the subscription runs, and a message waited all the while"
                    );
                } else {
                    green_since = Instant::now();
                    was_degraded = true;
                }
                sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            biased;
            handled = canary => handled?,
            violation = watching => violation?,
        }
    };
    ensure!(
        was_degraded || handled <= harness.quiet(),
        "a message waited {handled:?} after a cut, and the health never said that anything was wrong"
    );
    service
        .fares("running again", |health| health.state == SubscriptionState::Running)
        .await?;
    service.stop().await.map(drop)
}

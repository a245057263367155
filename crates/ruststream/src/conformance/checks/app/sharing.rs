//! Two apps on one name.

use std::time::Duration;

use tokio::time::sleep;

use super::{Book, Harness, Rig, Service, Violation, ensure, finds_nothing, numbered};
use crate::handler::Outcome;

/// Checks that two apps share a queue: each message is handled by one of them, once.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_shares_with_another<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.features().shares {
        return Ok(());
    }
    let book = Book::new();
    let handler = || {
        book.handler(|_| async {
            sleep(Duration::from_millis(1)).await;
            Outcome::ACK
        })
    };
    let one = Service::start(&rig, handler(), |subscription| {
        subscription.workers(2);
    })
    .await?;
    let two = Service::start(&rig, handler(), |subscription| {
        subscription.workers(2);
    })
    .await?;
    let sent = numbered(200);
    for call in sent.chunks(20) {
        rig.publish_all(call).await?;
    }
    book.each_once(&sent, rig.deadline()).await?;
    one.stop().await?;
    two.stop().await?;
    finds_nothing(&rig, "everything was handled").await?;
    book.was_each_once(&sent)
}

/// Checks that a healthy handler which takes longer than the lease runs once, though another app waits for work.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_renews_its_leases<H: Harness>(harness: &H) -> Result<(), Violation> {
    const LEASE: Duration = Duration::from_millis(500);
    let Some(rig) = Rig::leased(harness, LEASE).await? else {
        return Ok(());
    };
    let book = Book::new();
    let handler = || {
        book.handler(|_| async {
            sleep(LEASE * 2).await;
            Outcome::ACK
        })
    };
    let one = Service::start(&rig, handler(), |subscription| {
        subscription.workers(2);
    })
    .await?;
    let two = Service::start(&rig, handler(), |subscription| {
        subscription.workers(2);
    })
    .await?;
    let sent = numbered(4);
    rig.publish_all(&sent).await?;
    book.ended(sent.len(), rig.deadline()).await?;
    let stale = one.health()?.stale + two.health()?.stale;
    one.stop().await?;
    two.stop().await?;
    let longer = book.was_each_once(&sent);
    longer
        .map_err(|violation| Violation::new(format!("of handlers that take longer than their lease: {violation}")))?;
    ensure!(
        stale == 0,
        "{stale} receipts came too late, though their leases were renewed"
    );
    finds_nothing(&rig, "everything was handled").await
}

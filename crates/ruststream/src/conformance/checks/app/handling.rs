//! The usual way of messages through an app.

use std::sync::Arc;

use super::{Book, Harness, Rig, Service, Tally, Violation, finds_nothing, numbered, reply_to};

/// Checks that an app handles each message once and settles it: after a restart nothing is left.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_handles_each_once<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let book = Book::new();
    let service = Service::start(&rig, book.acks(), |subscription| {
        subscription.workers(4);
    })
    .await?;
    let sent = numbered(100);
    for call in sent.chunks(7) {
        rig.publish_all(call).await?;
    }
    book.each_once(&sent, rig.deadline()).await?;
    service.stop().await?;
    finds_nothing(&rig, "everything was handled").await?;
    book.was_each_once(&sent)
}

/// Checks that four workers drain a backlog of two thousand messages, and that all of it is settled.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_drains_a_backlog<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let sent = numbered(2000);
    let book = Book::new();
    let service = Service::start(&rig, book.acks(), |subscription| {
        subscription.workers(4);
    })
    .await?;
    service.handle().pause(&rig.name);
    for call in sent.chunks(500) {
        rig.publish_all(call).await?;
    }
    service.handle().resume(&rig.name);
    book.each_once(&sent, rig.deadline()).await?;
    service.stop().await?;
    finds_nothing(&rig, "the backlog was handled").await
}

/// Checks that a reply is stored before its cause is acked: an app that is shut down right after its handlers leaves either
/// the reply or the message, here the reply.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_confirms_replies_before_acks<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let replies = Rig::named(harness, harness.name()).await?;
    let mut reader = replies.open().await?;
    let book = Book::new();
    let destination: Arc<str> = replies.name.as_str().into();
    let answering = book.handler(move |run| {
        let destination = destination.clone();
        async move { reply_to(&destination, &run.text) }
    });
    let service = Service::start(&rig, answering, |subscription| {
        subscription.workers(4);
    })
    .await?;
    let sent = numbered(20);
    rig.publish_all(&sent).await?;
    book.ended(sent.len(), rig.deadline()).await?;
    service.stop().await?;
    book.was_each_once(&sent)?;
    let drained = reader.drain(&mut Tally::of(&sent), 20).await;
    drained.map_err(|violation| Violation::new(format!("of the replies: {violation}")))?;
    finds_nothing(&rig, "everything was answered").await
}

//! Many messages, many consumers, many cancelled calls.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{Harness, Reader, Rig, Tally, Violation, ensure, failed, numbered, text};
use crate::transport::{Delivery, Fetch};

/// Checks that ten thousand messages, all there before the first fetch, are each delivered once.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn drains_a_backlog<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    let sent = numbered(10_000);
    for call in sent.chunks(500) {
        rig.publish_all(call).await?;
    }
    reader.drain(&mut Tally::of(&sent), 256).await
}

/// Checks that two consumers on two connections share a queue: each message goes to one of them.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn shares_among_consumers<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.features().shares {
        return Ok(());
    }
    let other = rig.another().await?;
    let mut one = rig.open().await?;
    let mut two = other.open().await?;
    let sent = numbered(60);
    let tally = RefCell::new(Tally::of(&sent));
    let (published, first, second) = tokio::join!(
        rig.publish_all(&sent),
        consume(&mut one, &tally),
        consume(&mut two, &tally),
    );
    published?;
    first?;
    second?;
    tally.into_inner().check()?;
    one.stays_quiet("everything was acked").await
}

/// Takes and acks until each message came to one of the consumers, and nothing more comes.
async fn consume<H: Harness>(reader: &mut Reader<H>, tally: &RefCell<Tally>) -> Result<(), Violation> {
    let deadline = Instant::now() + reader.deadline;
    loop {
        let mut taken = Vec::new();
        match timeout(reader.quiet, reader.fetch.fetch(5, &mut taken)).await {
            Ok(Err(error)) if error.is_transient() => sleep(Duration::from_millis(20)).await,
            Ok(Err(error)) => return Err(failed("fetch", &error)),
            Ok(Ok(())) | Err(_) => {}
        }
        let idle = taken.is_empty();
        tally.borrow_mut().add(&taken);
        reader.ack(taken).await?;
        if (idle && tally.borrow().is_complete()) || Instant::now() > deadline {
            return Ok(());
        }
    }
}

/// Checks that a fetch may be dropped at any await point, while messages flow: none is lost, none is doubled.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn fetch_is_cancel_safe<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    let sent = numbered(90);
    let publishing = async {
        for call in sent.chunks(2) {
            rig.publish_all(call).await?;
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    };
    let counted = rig.capabilities().attempts();
    let reading = async {
        let mut tally = Tally::of(&sent);
        let mut last_progress = Instant::now();
        for call in 0usize.. {
            let mut taken = Vec::new();
            let fetch = reader.fetch.fetch(4, &mut taken);
            let outcome = match call % 16 {
                // Now and then a call may end, so that a transport which needs many polls gets on.
                15 => timeout(Duration::from_millis(50), fetch).await.ok(),
                polls if polls < 8 => timeout(Duration::from_millis(5), polled_at_most(polls, fetch))
                    .await
                    .ok()
                    .flatten(),
                others => {
                    let time = Duration::from_micros(300) * (others as u32 - 7);
                    timeout(time, fetch).await.ok()
                }
            };
            if let Some(Err(error)) = outcome {
                ensure!(error.is_transient(), "fetch failed: {error}");
            }
            for delivery in &taken {
                let attempt = delivery.attempt();
                ensure!(
                    attempt == 1 || !counted,
                    "{} came as attempt {attempt}: a cancelled fetch had taken it before",
                    text(delivery),
                );
            }
            if !taken.is_empty() {
                last_progress = Instant::now();
            }
            tally.add(&taken);
            reader.ack(taken).await?;
            if tally.is_complete() || last_progress.elapsed() > harness.deadline() {
                break;
            }
        }
        Ok(tally)
    };
    let (published, tally) = tokio::join!(publishing, reading);
    published?;
    tally?.check()?;
    reader.stays_quiet("everything was acked").await
}

/// Polls a future up to `limit` times; `None` if it did not end by then.
async fn polled_at_most<T>(limit: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        if polls == limit {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polls == limit => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

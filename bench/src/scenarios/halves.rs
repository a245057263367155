//! The loop `crate` of every transport: its halves driven by hand, without the runtime.

use ruststream::message::Outgoing;
use ruststream::transport::{Delivery as _, Fetch, Publish, Settle, Verdict};
use tokio::task::JoinSet;

use super::work;
use crate::suite::{Failed, Tally};

/// How the halves are driven.
#[derive(Debug, Clone, Copy)]
pub struct Drive {
    /// The most that is fetched at a time. Receipts travel while the next deliveries are fetched, unless it is one: then each
    /// message is settled before the next is fetched.
    pub chunk: usize,
    /// Where each message is answered, if it is; replies are confirmed before their messages are settled.
    pub reply_to: Option<&'static str>,
}

/// Handles and settles until all messages are counted, each pair of halves in a task of its own.
///
/// # Errors
///
/// Those of the transport, and a payload that is no order.
pub async fn drain<F, S, P>(pairs: Vec<(F, S)>, publisher: P, drive: Drive, tally: Tally) -> Result<(), Failed>
where
    F: Fetch,
    S: Settle<Receipt = <F::Delivery as ruststream::transport::Delivery>::Receipt>,
    P: Publish,
{
    let mut running = JoinSet::new();
    for (fetch, settle) in pairs {
        running.spawn(pair(fetch, settle, publisher.clone(), drive, tally.clone()));
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

async fn pair<F, S, P>(mut fetch: F, mut settle: S, publisher: P, drive: Drive, tally: Tally) -> Result<(), Failed>
where
    F: Fetch,
    S: Settle<Receipt = <F::Delivery as ruststream::transport::Delivery>::Receipt>,
    P: Publish,
{
    let mut taken = Vec::with_capacity(drive.chunk);
    let mut finished = Vec::with_capacity(drive.chunk);
    let mut replies = Vec::new();
    loop {
        let settled = async {
            if let Some(to) = drive.reply_to
                && !replies.is_empty()
            {
                let outgoing: Vec<_> = replies.iter().map(|reply: &Vec<u8>| Outgoing::new(to, reply)).collect();
                publisher.publish(&outgoing).await?;
            }
            if !finished.is_empty() {
                settle.settle(&mut finished).await?;
            }
            Ok::<(), Failed>(())
        };
        // A fetch waits for messages for ever, so the loop ends by the count.
        let fetched = async {
            tokio::select! {
                biased;
                fetched = fetch.fetch(drive.chunk, &mut taken) => Ok::<(), Failed>(fetched?),
                () = tally.all() => Ok(()),
            }
        };
        if drive.chunk == 1 {
            settled.await?;
            fetched.await?;
        } else {
            tokio::try_join!(settled, fetched)?;
        }
        replies.clear();
        if taken.is_empty() {
            fetch.close().await?;
            return Ok(settle.close().await?);
        }
        for delivery in taken.drain(..) {
            let receipt = work::handle(work::decoded(delivery.payload())?);
            if drive.reply_to.is_some() {
                replies.push(work::encoded(&receipt));
            }
            finished.push((delivery.into_receipt(), Verdict::Ack));
            tally.one();
        }
    }
}

/// So many tasks publish their part of the messages, one by one, each confirmed before the next is sent.
///
/// # Errors
///
/// Those of the transport.
pub async fn publish<P: Publish>(
    publisher: P,
    destination: &'static str,
    tasks: usize,
    messages: u64,
    tally: Tally,
) -> Result<(), Failed> {
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (publisher, tally) = (publisher.clone(), tally.clone());
        running.spawn(async move {
            let order = work::noted_order();
            for _ in 0..messages / tasks as u64 {
                let body = work::encoded(&order);
                publisher.publish(&[Outgoing::new(destination, &body)]).await?;
                tally.one();
            }
            Ok::<(), Failed>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

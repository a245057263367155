//! A producer publishes while a consumer handles, each on a thread of its own.

use ruststream::memory::Queue;
use ruststream::message::Outgoing;
use ruststream::transport::{Broker as _, Publish as _, Source as _};
use tokio::sync::mpsc;

use super::{CAPACITY, Memory, QUEUE, service};
use crate::scenarios::halves::{self, Drive};
use crate::scenarios::work;
use crate::suite::{Failed, Scenario, Trial};

/// What the tuned producer sends at a time.
const CHUNK: u64 = 64;

pub(super) fn scenario() -> Scenario<Memory> {
    Scenario::new("memory.flow", "a producer and a consumer on two threads")
        .about(
            "One task encodes and publishes small JSON messages one by one, another decodes and handles them, with room for 1,024 in \
             between. The bare loop sends them through a channel of tokio; the tuned one sends 64 at a time.",
        )
        .turn("bare", bare)
        .turn("tuned", tuned)
        .turn("crate", by_halves)
        .turn("service", |trial| async move {
            let broker = super::broker(CAPACITY);
            trial
                .timed(service::flow(broker.clone(), trial.tally(), trial.messages(), 1, None))
                .await?;
            trial.expect("acked messages", broker.counts(QUEUE).acked, trial.messages())
        })
}

async fn bare(trial: Trial<Memory>) -> Result<(), Failed> {
    let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(CAPACITY);
    let (messages, tally) = (trial.messages(), trial.tally());
    trial
        .timed(async {
            let producer = tokio::spawn(async move {
                let order = work::small_order();
                for _ in 0..messages {
                    sender.send(work::encoded(&order)).await?;
                }
                Ok::<(), Failed>(())
            });
            while let Some(body) = receiver.recv().await {
                work::handle(work::decoded(&body)?);
                tally.one();
            }
            producer.await?
        })
        .await
}

async fn tuned(trial: Trial<Memory>) -> Result<(), Failed> {
    let (sender, mut receiver) = mpsc::channel::<Vec<Vec<u8>>>(CAPACITY / CHUNK as usize);
    let (messages, tally) = (trial.messages(), trial.tally());
    trial
        .timed(async {
            let producer = tokio::spawn(async move {
                let order = work::small_order();
                for _ in 0..messages / CHUNK {
                    sender.send((0..CHUNK).map(|_| work::encoded(&order)).collect()).await?;
                }
                Ok::<(), Failed>(())
            });
            while let Some(bodies) = receiver.recv().await {
                for body in bodies {
                    work::handle(work::decoded(&body)?);
                    tally.one();
                }
            }
            producer.await?
        })
        .await
}

async fn by_halves(trial: Trial<Memory>) -> Result<(), Failed> {
    let broker = super::broker(CAPACITY);
    let connection = broker.connect().await?;
    let pair = Queue::new(QUEUE).open(&connection).await?;
    let publisher = broker.publisher();
    let (messages, tally) = (trial.messages(), trial.tally());
    let drive = Drive {
        chunk: CAPACITY / 4,
        reply_to: None,
    };
    trial
        .timed(async {
            let producer = tokio::spawn(async move {
                let order = work::small_order();
                for _ in 0..messages {
                    publisher
                        .publish(&[Outgoing::new(QUEUE, &work::encoded(&order))])
                        .await?;
                }
                Ok::<(), Failed>(())
            });
            halves::drain(vec![pair], broker.publisher(), drive, tally).await?;
            producer.await?
        })
        .await?;
    trial.expect("acked messages", broker.counts(QUEUE).acked, messages)
}

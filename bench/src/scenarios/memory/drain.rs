//! A full queue is emptied.

use ruststream::memory::{MemoryBroker, Queue};
use ruststream::message::Outgoing;
use ruststream::transport::{Broker as _, Publish as _, Source as _};
use tokio::sync::mpsc;

use super::{Memory, QUEUE};
use crate::scenarios::halves::{self, Drive};
use crate::scenarios::{service, work};
use crate::suite::{Failed, Scenario, Trial};

/// What a tuned loop takes at a time, and what the crate's loop fetches.
const CHUNK: usize = 256;

pub(super) fn scenario() -> Scenario<Memory> {
    Scenario::new("memory.drain", "a full queue is emptied by one worker")
        .about(
            "Small JSON messages wait in a queue. The bare loop receives them from a channel of tokio, decodes and handles them; the \
             tuned one receives up to 256 at a time.",
        )
        .at_most(131_072)
        .turn("bare", |trial| receive(trial, 1))
        .turn("tuned", |trial| receive(trial, CHUNK))
        .turn("crate", by_halves)
        .turn("service", |trial| async move {
            let broker = filled(&trial).await?;
            let mounted = service::drain(broker.clone(), trial.tally(), |broker| {
                broker.include(service::each);
            });
            trial.timed(mounted).await?;
            all_acked(&trial, &broker)
        })
}

async fn receive(trial: Trial<Memory>, chunk: usize) -> Result<(), Failed> {
    let (sender, mut receiver) = mpsc::channel(usize::try_from(trial.messages())?);
    let body = work::encoded(&work::small_order());
    for _ in 0..trial.messages() {
        sender.send(body.clone()).await?;
    }
    drop(sender);
    let tally = trial.tally();
    trial
        .timed(async {
            let mut taken = Vec::with_capacity(chunk);
            while receiver.recv_many(&mut taken, chunk).await > 0 {
                for body in taken.drain(..) {
                    work::handle(work::decoded(&body)?);
                    tally.one();
                }
            }
            Ok(())
        })
        .await
}

async fn by_halves(trial: Trial<Memory>) -> Result<(), Failed> {
    let broker = filled(&trial).await?;
    let connection = broker.connect().await?;
    let pair = Queue::new(QUEUE).open(&connection).await?;
    let drive = Drive {
        chunk: CHUNK,
        reply_to: None,
    };
    trial
        .timed(halves::drain(vec![pair], broker.publisher(), drive, trial.tally()))
        .await?;
    all_acked(&trial, &broker)
}

async fn filled(trial: &Trial<Memory>) -> Result<MemoryBroker, Failed> {
    let broker = super::broker(usize::try_from(trial.messages())?);
    let body = work::encoded(&work::small_order());
    let publisher = broker.publisher();
    for _ in 0..trial.messages() {
        publisher.publish(&[Outgoing::new(QUEUE, &body)]).await?;
    }
    Ok(broker)
}

fn all_acked(trial: &Trial<Memory>, broker: &MemoryBroker) -> Result<(), Failed> {
    trial.expect("acked messages", broker.counts(QUEUE).acked, trial.messages())
}

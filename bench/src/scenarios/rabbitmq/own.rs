//! The crate's loops: its halves by hand, and a service.

use ruststream::app::BrokerScope;
use ruststream::message::Outgoing;
use ruststream::transport::{Broker as _, Connection as _, Publish as _, Source as _};
use ruststream_lapin::{LapinBroker, Queue, QueueType};

use super::{Rabbit, declare, hand};
use crate::scenarios::halves::{self, Drive};
use crate::scenarios::{service, work};
use crate::suite::{Failed, Tally, Trial};

fn broker(trial: &Trial<Rabbit>) -> LapinBroker {
    LapinBroker::new(trial.transport().server.url())
}

/// One pair of halves.
pub(super) async fn halves(trial: Trial<Rabbit>, queue_type: QueueType, drive: Drive) -> Result<(), Failed> {
    let by_hand = trial.transport().connection().await?;
    let queue = hand::filled(&trial, &by_hand, queue_type).await?;
    let connection = broker(&trial).connect().await?;
    let pair = Queue::new(&queue).queue_type(queue_type).open(&connection).await?;
    trial
        .timed(halves::drain(vec![pair], connection.publisher(), drive, trial.tally()))
        .await?;
    connection.close().await;
    hand::emptied(&trial, &by_hand, &queue, queue_type).await
}

/// A service, mounted so.
pub(super) async fn service(
    trial: Trial<Rabbit>,
    queue_type: QueueType,
    mount: impl FnOnce(&mut BrokerScope<'_, LapinBroker, Tally>, Queue) + Send,
) -> Result<(), Failed> {
    let by_hand = trial.transport().connection().await?;
    let queue = hand::filled(&trial, &by_hand, queue_type).await?;
    let source = Queue::new(&queue).queue_type(queue_type);
    trial
        .timed(service::drain(broker(&trial), trial.tally(), |broker| {
            mount(broker, source);
        }))
        .await?;
    hand::emptied(&trial, &by_hand, &queue, queue_type).await
}

/// A queue to publish to, whose name lives as long as the program, as the shared loops want it.
async fn empty(trial: &Trial<Rabbit>) -> Result<(lapin::Connection, &'static str), Failed> {
    let by_hand = trial.transport().connection().await?;
    let queue: &'static str = trial.transport().name().leak();
    let channel = by_hand.create_channel().await?;
    declare(&channel, queue, QueueType::Classic).await?;
    Ok((by_hand, queue))
}

/// The crate's publisher, from so many tasks.
pub(super) async fn publish(trial: Trial<Rabbit>, tasks: usize) -> Result<(), Failed> {
    let (by_hand, queue) = empty(&trial).await?;
    let connection = broker(&trial).connect().await?;
    let publisher = connection.publisher();
    trial
        .timed(halves::publish(
            publisher,
            queue,
            tasks,
            trial.messages(),
            trial.tally(),
        ))
        .await?;
    connection.close().await;
    hand::stored(&trial, &by_hand, queue).await
}

/// The crate's publisher, so many messages a call.
pub(super) async fn publish_many(trial: Trial<Rabbit>, group: u64) -> Result<(), Failed> {
    let (by_hand, queue) = empty(&trial).await?;
    let connection = broker(&trial).connect().await?;
    let publisher = connection.publisher();
    trial
        .timed(async {
            let order = work::noted_order();
            let tally = trial.tally();
            while tally.count() < trial.messages() {
                let count = group.min(trial.messages() - tally.count());
                let bodies: Vec<_> = (0..count).map(|_| work::encoded(&order)).collect();
                let outgoing: Vec<_> = bodies.iter().map(|body| Outgoing::new(queue, body)).collect();
                publisher.publish(&outgoing).await?;
                tally.many(count);
            }
            Ok(())
        })
        .await?;
    connection.close().await;
    hand::stored(&trial, &by_hand, queue).await
}

/// An app's publisher, from so many tasks.
pub(super) async fn publish_by_app(trial: Trial<Rabbit>, tasks: usize) -> Result<(), Failed> {
    let (by_hand, queue) = empty(&trial).await?;
    let broker = broker(&trial);
    trial
        .timed(service::publish(broker, queue, tasks, trial.messages(), trial.tally()))
        .await?;
    hand::stored(&trial, &by_hand, queue).await
}

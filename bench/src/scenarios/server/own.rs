//! The crate's loops: its halves by hand, and a service.

use ruststream::app::BrokerScope;
use ruststream::message::Outgoing;
use ruststream::transport::{Broker as _, Connection as _, Publish as _, Source as _};
use ruststream_sqlx::Inbox;

use super::{Database, OWN, Place, QUEUE, REPLIES};
use crate::scenarios::halves::{self, Drive};
use crate::scenarios::{service, work};
use crate::suite::{Failed, Tally, Trial};

/// So many pairs of halves on one connection.
pub(super) async fn halves<D: Database>(trial: Trial<D>, tasks: usize, drive: Drive) -> Result<(), Failed> {
    halves_of(trial, tasks, drive, || Inbox::queue(QUEUE)).await
}

/// The same, of a source that is made so.
pub(super) async fn halves_of<D: Database>(
    trial: Trial<D>,
    tasks: usize,
    drive: Drive,
    inbox: fn() -> Inbox,
) -> Result<(), Failed> {
    let (place, broker) = filled(&trial).await?;
    let connection = broker.connect().await?;
    let mut pairs = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        pairs.push(inbox().open(&connection).await?);
    }
    trial
        .timed(halves::drain(pairs, connection.publisher(), drive, trial.tally()))
        .await?;
    connection.close().await;
    nothing_left(&trial, &place, drive.reply_to.is_some()).await
}

/// One pair of halves, on a table that has many rows besides.
pub(super) async fn deep<D: Database>(trial: Trial<D>, drive: Drive) -> Result<(), Failed> {
    let (place, broker) = filled(&trial).await?;
    let scheduled = (trial.messages() * 100).min(1_000_000);
    place.deepen(scheduled, &work::body()).await?;
    let connection = broker.connect().await?;
    let pairs = vec![Inbox::queue(QUEUE).open(&connection).await?];
    trial
        .timed(halves::drain(pairs, connection.publisher(), drive, trial.tally()))
        .await?;
    connection.close().await;
    let others = scheduled + scheduled / 5 + scheduled / 20;
    trial.expect("messages left", place.stored(OWN, QUEUE).await?, others)?;
    place.remove().await
}

/// A service, mounted so.
pub(super) async fn service<D: Database>(
    trial: Trial<D>,
    mount: impl FnOnce(&mut BrokerScope<'_, D::Broker, Tally>) + Send,
    replies: bool,
) -> Result<(), Failed> {
    let (place, broker) = filled(&trial).await?;
    trial.timed(service::drain(broker, trial.tally(), mount)).await?;
    nothing_left(&trial, &place, replies).await
}

/// The crate's publisher, from so many tasks.
pub(super) async fn publish<D: Database>(trial: Trial<D>, tasks: usize) -> Result<(), Failed> {
    let place = trial.transport().place().await?;
    let connection = D::broker(&place).connect().await?;
    let publishing = halves::publish(connection.publisher(), QUEUE, tasks, trial.messages(), trial.tally());
    trial.timed(publishing).await?;
    connection.close().await;
    trial.expect("messages stored", place.stored(OWN, QUEUE).await?, trial.messages())?;
    place.remove().await
}

/// An app's publisher, from so many tasks.
pub(super) async fn publish_by_app<D: Database>(trial: Trial<D>, tasks: usize) -> Result<(), Failed> {
    let place = trial.transport().place().await?;
    // The table is there before the time runs, as in every other loop.
    let broker = D::broker(&place);
    broker.connect().await?.close().await;
    trial
        .timed(service::publish(broker, QUEUE, tasks, trial.messages(), trial.tally()))
        .await?;
    trial.expect("messages stored", place.stored(OWN, QUEUE).await?, trial.messages())?;
    place.remove().await
}

/// A place whose queue holds the messages of the trial.
async fn filled<D: Database>(trial: &Trial<D>) -> Result<(D::Place, D::Broker), Failed> {
    const GROUP: usize = 512;
    let place = trial.transport().place().await?;
    let broker = D::broker(&place);
    let connection = broker.connect().await?;
    let publisher = connection.publisher();
    let body = work::body();
    let group = vec![Outgoing::new(QUEUE, &body); GROUP];
    for _ in 0..trial.messages() / GROUP as u64 {
        publisher.publish(&group).await?;
    }
    connection.close().await;
    Ok((place, broker))
}

async fn nothing_left<D: Database>(trial: &Trial<D>, place: &D::Place, replies: bool) -> Result<(), Failed> {
    trial.expect("messages left", place.stored(OWN, QUEUE).await?, 0)?;
    let wanted = if replies { trial.messages() } else { 0 };
    trial.expect("replies", place.stored(OWN, REPLIES).await?, wanted)?;
    place.remove().await
}

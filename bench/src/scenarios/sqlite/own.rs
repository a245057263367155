//! The crate's loops: its halves by hand, and a service.

use ruststream::app::BrokerScope;
use ruststream::message::Outgoing;
use ruststream::transport::{Broker as _, Connection as _, Publish as _, Source as _};
use ruststream_sqlx::{Inbox, SqlxBroker};

use super::{File, QUEUE, REPLIES, Sqlite};
use crate::scenarios::halves::{self, Drive};
use crate::scenarios::{service, work};
use crate::suite::{Failed, Tally, Trial};

/// So many pairs of halves on one connection.
pub(super) async fn halves(trial: Trial<Sqlite>, tasks: usize, drive: Drive) -> Result<(), Failed> {
    let (file, broker) = filled(&trial).await?;
    let connection = broker.connect().await?;
    let mut pairs = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        pairs.push(Inbox::queue(QUEUE).open(&connection).await?);
    }
    trial
        .timed(halves::drain(pairs, connection.publisher(), drive, trial.tally()))
        .await?;
    connection.close().await;
    nothing_left(&trial, &file, drive.reply_to.is_some()).await
}

/// A service, mounted so.
pub(super) async fn service(
    trial: Trial<Sqlite>,
    mount: impl FnOnce(&mut BrokerScope<'_, SqlxBroker, Tally>) + Send,
    replies: bool,
) -> Result<(), Failed> {
    let (file, broker) = filled(&trial).await?;
    trial.timed(service::drain(broker, trial.tally(), mount)).await?;
    nothing_left(&trial, &file, replies).await
}

/// The crate's publisher, from so many tasks.
pub(super) async fn publish(trial: Trial<Sqlite>, tasks: usize) -> Result<(), Failed> {
    let file = trial.transport().file()?;
    let connection = SqlxBroker::sqlite(&file.path).connect().await?;
    trial
        .timed(halves::publish(
            connection.publisher(),
            QUEUE,
            tasks,
            trial.messages(),
            trial.tally(),
        ))
        .await?;
    connection.close().await;
    trial.expect("messages stored", file.stored(QUEUE).await?, trial.messages())
}

/// An app's publisher, from so many tasks.
pub(super) async fn publish_by_app(trial: Trial<Sqlite>, tasks: usize) -> Result<(), Failed> {
    let file = trial.transport().file()?;
    // The table is there before the time runs, as in every other loop.
    let broker = SqlxBroker::sqlite(&file.path);
    broker.connect().await?.close().await;
    trial
        .timed(service::publish(broker, QUEUE, tasks, trial.messages(), trial.tally()))
        .await?;
    trial.expect("messages stored", file.stored(QUEUE).await?, trial.messages())
}

/// A file whose queue holds the messages of the trial, its log emptied.
async fn filled(trial: &Trial<Sqlite>) -> Result<(File, SqlxBroker), Failed> {
    const GROUP: usize = 512;
    let file = trial.transport().file()?;
    let broker = SqlxBroker::sqlite(&file.path);
    let connection = broker.connect().await?;
    let publisher = connection.publisher();
    let body = work::body();
    let group = vec![Outgoing::new(QUEUE, &body); GROUP];
    for _ in 0..trial.messages() / GROUP as u64 {
        publisher.publish(&group).await?;
    }
    connection.close().await;
    file.checkpoint().await?;
    Ok((file, broker))
}

async fn nothing_left(trial: &Trial<Sqlite>, file: &File, replies: bool) -> Result<(), Failed> {
    trial.expect("messages left", file.stored(QUEUE).await?, 0)?;
    let wanted = if replies { trial.messages() } else { 0 };
    trial.expect("replies", file.stored(REPLIES).await?, wanted)
}

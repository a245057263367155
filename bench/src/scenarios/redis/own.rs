//! The crate's loops: its halves by hand, and a service.

use fred::interfaces::{ClientLike as _, KeysInterface as _, StreamsInterface as _};
use ruststream::app::BrokerScope;
use ruststream::transport::{Broker as _, Connection as _, Source as _};
use ruststream_fred::{RedisBroker, RedisStream};

use super::{GROUP, Redis, hand, left};
use crate::scenarios::halves::{self, Drive};
use crate::scenarios::service;
use crate::suite::{Failed, Tally, Trial};

fn broker(trial: &Trial<Redis>) -> RedisBroker {
    RedisBroker::standalone(trial.transport().server.url())
}

/// One pair of halves.
pub(super) async fn halves(trial: Trial<Redis>, drive: Drive) -> Result<(), Failed> {
    let client = trial.transport().client().await?;
    let stream = hand::filled(&trial, &client).await?;
    let connection = broker(&trial).connect().await?;
    let pair = RedisStream::new(&stream).group(GROUP).open(&connection).await?;
    trial
        .timed(halves::drain(vec![pair], connection.publisher(), drive, trial.tally()))
        .await?;
    connection.close().await;
    trial.expect("messages left", left(&client, &stream).await?, 0)?;
    let _: () = client.del(stream).await?;
    Ok(client.quit().await?)
}

/// A service, mounted so.
pub(super) async fn service(
    trial: Trial<Redis>,
    mount: impl FnOnce(&mut BrokerScope<'_, RedisBroker, Tally>, RedisStream) + Send,
) -> Result<(), Failed> {
    let client = trial.transport().client().await?;
    let stream = hand::filled(&trial, &client).await?;
    let source = RedisStream::new(&stream).group(GROUP);
    trial
        .timed(service::drain(broker(&trial), trial.tally(), |broker| {
            mount(broker, source);
        }))
        .await?;
    trial.expect("messages left", left(&client, &stream).await?, 0)?;
    let _: () = client.del(stream).await?;
    Ok(client.quit().await?)
}

/// The crate's publisher, from so many tasks.
pub(super) async fn publish(trial: Trial<Redis>, tasks: usize) -> Result<(), Failed> {
    let connection = broker(&trial).connect().await?;
    // The halves publish to a name that lives as long as the program.
    let stream: &'static str = trial.transport().key("orders").leak();
    trial
        .timed(halves::publish(
            connection.publisher(),
            stream,
            tasks,
            trial.messages(),
            trial.tally(),
        ))
        .await?;
    connection.close().await;
    stored(&trial, stream).await
}

/// An app's publisher, from so many tasks.
pub(super) async fn publish_by_app(trial: Trial<Redis>, tasks: usize) -> Result<(), Failed> {
    let stream: &'static str = trial.transport().key("orders").leak();
    trial
        .timed(service::publish(
            broker(&trial),
            stream,
            tasks,
            trial.messages(),
            trial.tally(),
        ))
        .await?;
    stored(&trial, stream).await
}

async fn stored(trial: &Trial<Redis>, stream: &str) -> Result<(), Failed> {
    let client = trial.transport().client().await?;
    let stored: u64 = client.xlen(stream).await?;
    trial.expect("messages stored", stored, trial.messages())?;
    let _: () = client.del(stream).await?;
    Ok(client.quit().await?)
}

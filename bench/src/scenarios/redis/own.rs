//! The crate's loops: its halves by hand, and a service.

use fred::clients::Client;
use fred::interfaces::{ClientLike as _, KeysInterface as _, ListInterface as _, StreamsInterface as _};
use ruststream::app::BrokerScope;
use ruststream::prelude::{AppInfo, RustStream};
use ruststream::transport::{Broker as _, Connection as _, Source as _};
use ruststream_fred::{RedisBroker, RedisChannel, RedisList, RedisStream};

use super::channels::AT_MOST;
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

/// One pair of halves on a list.
pub(super) async fn list_halves(trial: Trial<Redis>, drive: Drive) -> Result<(), Failed> {
    let client = trial.transport().client().await?;
    let list = hand::filled_list(&trial, &client).await?;
    let connection = broker(&trial).connect().await?;
    let pair = RedisList::new(&list).open(&connection).await?;
    trial
        .timed(halves::drain(vec![pair], connection.publisher(), drive, trial.tally()))
        .await?;
    connection.close().await;
    nothing_left(&trial, client, &list).await
}

/// A service on a list, mounted so.
pub(super) async fn list_service(
    trial: Trial<Redis>,
    mount: impl FnOnce(&mut BrokerScope<'_, RedisBroker, Tally>, RedisList) + Send,
) -> Result<(), Failed> {
    let client = trial.transport().client().await?;
    let list = hand::filled_list(&trial, &client).await?;
    let source = RedisList::new(&list);
    trial
        .timed(service::drain(broker(&trial), trial.tally(), |broker| {
            mount(broker, source);
        }))
        .await?;
    nothing_left(&trial, client, &list).await
}

/// Neither in the list nor in the place of a consumer.
async fn nothing_left(trial: &Trial<Redis>, client: Client, list: &str) -> Result<(), Failed> {
    let left: u64 = client.llen(list).await?;
    let held: u64 = client.exists(format!("{{{list}}}:ruststream:consumers")).await?;
    trial.expect("messages left", left + held, 0)?;
    Ok(client.quit().await?)
}

/// A service that listens to a channel, or to all that match, while another task publishes.
pub(super) async fn listen(trial: Trial<Redis>, by_pattern: bool) -> Result<(), Failed> {
    let channel = trial.transport().key("news");
    let source = if by_pattern {
        RedisChannel::pattern(&format!("{channel}*"))
    } else {
        RedisChannel::new(&channel)
    };
    let source = source.buffer(usize::try_from(AT_MOST)?);
    let publisher = trial.transport().client().await?;
    let running = RustStream::new(AppInfo::new("bench", "0"))
        .state(trial.tally())
        .with_broker(broker(&trial), |broker| {
            broker.include(service::each).source(source);
        })
        .start()
        .await?;
    let (tally, messages) = (trial.tally(), trial.messages());
    let publishing = tokio::spawn(hand::publish_all(publisher, channel, messages));
    trial
        .timed(async {
            tally.all().await;
            Ok(())
        })
        .await?;
    publishing.await??;
    Ok(running.shutdown().await?)
}

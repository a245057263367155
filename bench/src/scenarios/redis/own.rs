//! The crate's loops: its halves by hand, and a service.

use fred::clients::Client;
use fred::interfaces::{ClientLike as _, KeysInterface as _, ListInterface as _, StreamsInterface as _};
use ruststream::app::BrokerScope;
use ruststream::prelude::{AppInfo, RustStream, State, subscriber};
use ruststream::transport::{Broker as _, Connection as _, Source as _, TransportError};
use ruststream_fred::{RedisBroker, RedisChannel, RedisCommands, RedisList, RedisStream};

use super::channels::{AT_MOST, By};
use super::place::Place;
use super::{GROUP, Redis, hand, left};
use crate::scenarios::halves::{self, Drive};
use crate::scenarios::{service, work};
use crate::suite::{Failed, Tally, Trial};

fn broker(trial: &Trial<Redis>, place: Place) -> Result<RedisBroker, Failed> {
    trial.transport().servers.broker(place)
}

/// One pair of halves.
pub(super) async fn halves(trial: Trial<Redis>, place: Place, drive: Drive) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let stream = hand::filled(&trial, &client).await?;
    let connection = broker(&trial, place)?.connect().await?;
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
    place: Place,
    mount: impl FnOnce(&mut BrokerScope<'_, RedisBroker, Tally>, RedisStream) + Send,
) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let stream = hand::filled(&trial, &client).await?;
    let source = RedisStream::new(&stream).group(GROUP);
    trial
        .timed(service::drain(broker(&trial, place)?, trial.tally(), |broker| {
            mount(broker, source);
        }))
        .await?;
    trial.expect("messages left", left(&client, &stream).await?, 0)?;
    let _: () = client.del(stream).await?;
    Ok(client.quit().await?)
}

/// The crate's publisher, from so many tasks.
pub(super) async fn publish(trial: Trial<Redis>, place: Place, tasks: usize) -> Result<(), Failed> {
    let connection = broker(&trial, place)?.connect().await?;
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
    stored(&trial, place, stream).await
}

/// An app's publisher, from so many tasks.
pub(super) async fn publish_by_app(trial: Trial<Redis>, place: Place, tasks: usize) -> Result<(), Failed> {
    let stream: &'static str = trial.transport().key("orders").leak();
    trial
        .timed(service::publish(
            broker(&trial, place)?,
            stream,
            tasks,
            trial.messages(),
            trial.tally(),
        ))
        .await?;
    stored(&trial, place, stream).await
}

async fn stored(trial: &Trial<Redis>, place: Place, stream: &str) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let stored: u64 = client.xlen(stream).await?;
    trial.expect("messages stored", stored, trial.messages())?;
    let _: () = client.del(stream).await?;
    Ok(client.quit().await?)
}

/// One pair of halves on a list.
pub(super) async fn list_halves(trial: Trial<Redis>, place: Place, drive: Drive) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let list = hand::filled_list(&trial, &client).await?;
    let connection = broker(&trial, place)?.connect().await?;
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
    place: Place,
    mount: impl FnOnce(&mut BrokerScope<'_, RedisBroker, Tally>, RedisList) + Send,
) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let list = hand::filled_list(&trial, &client).await?;
    let source = RedisList::new(&list);
    trial
        .timed(service::drain(broker(&trial, place)?, trial.tally(), |broker| {
            mount(broker, source);
        }))
        .await?;
    nothing_left(&trial, client, &list).await
}

/// Neither in the list nor in the place of a consumer.
async fn nothing_left(trial: &Trial<Redis>, client: Client, list: &str) -> Result<(), Failed> {
    let left: u64 = client.llen(list).await?;
    let held: u64 = client.exists(format!("{list}:ruststream:consumers")).await?;
    trial.expect("messages left", left + held, 0)?;
    Ok(client.quit().await?)
}

/// A service that listens to a channel, or to all that match, while another task publishes.
pub(super) async fn listen(trial: Trial<Redis>, place: Place, by: By) -> Result<(), Failed> {
    let channel = trial.transport().key("news");
    let source = match by {
        By::Name => RedisChannel::new(&channel),
        By::Pattern => RedisChannel::pattern(&format!("{channel}*")),
        By::Shard => RedisChannel::sharded(&channel),
    };
    let source = source.buffer(usize::try_from(AT_MOST)?);
    let publisher = trial.transport().client(place).await?;
    let running = RustStream::new(AppInfo::new("bench", "0"))
        .state(trial.tally())
        .with_broker(broker(&trial, place)?, |broker| {
            broker.include(service::each).source(source);
        })
        .start()
        .await?;
    let (tally, messages) = (trial.tally(), trial.messages());
    let publishing = tokio::spawn(hand::publish_all(publisher, channel, by, messages));
    trial
        .timed(async {
            tally.all().await;
            Ok(())
        })
        .await?;
    publishing.await??;
    Ok(running.shutdown().await?)
}

/// As [`service::each`], and counts the message with its ack.
#[subscriber("orders")]
async fn count(
    order: work::Order,
    commands: RedisCommands,
    State(counting): State<Counting>,
) -> Result<(), TransportError> {
    work::handle(order);
    commands.queue("INCR", [counting.counter])?;
    counting.tally.one();
    Ok(())
}

/// What messages are counted by, here and in the server.
#[derive(Clone)]
struct Counting {
    tally: Tally,
    counter: &'static str,
}

/// A service whose handler counts each message with its ack.
pub(super) async fn service_with_commands(trial: Trial<Redis>, place: Place, is_atomic: bool) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let stream = hand::filled(&trial, &client).await?;
    let source = RedisStream::new(&stream).group(GROUP);
    let source = if is_atomic { source.atomic() } else { source.pipeline() };
    // The state of a service lives as long as the program.
    let counting = Counting {
        tally: trial.tally(),
        counter: format!("{stream}-count").leak(),
    };
    let broker = broker(&trial, place)?;
    let draining = async {
        let running = RustStream::new(AppInfo::new("bench", "0"))
            .state(counting.clone())
            .with_broker(broker, |broker| {
                broker.include(count).source(source);
            })
            .start()
            .await?;
        counting.tally.all().await;
        Ok(running.shutdown().await?)
    };
    trial.timed(draining).await?;
    hand::counted(&trial, client, &stream).await
}

//! The crate's loops: its halves by hand, and a service.

use std::time::Duration;

use ruststream::app::BrokerScope;
use ruststream::message::Outgoing;
use ruststream::prelude::{AppInfo, RustStream};
use ruststream::transport::{Broker as _, Connection as _, Publish as _, Source as _};
use ruststream_rumqttc::{MqttBroker, QoS, TopicFilter};
use tokio::task::JoinSet;

use super::{AHEAD, Mqtt, hand};
use crate::scenarios::halves::{self, Drive};
use crate::scenarios::{service, work};
use crate::suite::{Failed, Tally, Trial};

fn broker(trial: &Trial<Mqtt>) -> MqttBroker {
    MqttBroker::new(trial.transport().server.url()).receive_maximum(AHEAD)
}

/// The broker of a session that messages wait for, and its subscriptions.
fn waiting(trial: &Trial<Mqtt>, session: &str, quality: QoS, filters: u64) -> (MqttBroker, Vec<TopicFilter>) {
    let broker = broker(trial).client_id(session).session_expiry(Duration::from_hours(1));
    let sources = (0..filters).map(|number| TopicFilter::new(hand::topic(session, number, filters)).quality(quality));
    (broker, sources.collect())
}

/// A pair of halves for each filter.
pub(super) async fn halves(trial: Trial<Mqtt>, quality: QoS, drive: Drive, filters: u64) -> Result<(), Failed> {
    let session = hand::filled(&trial, quality, filters).await?;
    let (broker, sources) = waiting(&trial, &session, quality, filters);
    trial
        .timed(async {
            let connection = broker.connect().await?;
            let mut pairs = Vec::with_capacity(sources.len());
            for source in &sources {
                pairs.push(source.open(&connection).await?);
            }
            let reading = halves::drain(pairs, connection.publisher(), drive, trial.tally());
            hand::fed(&trial, &session, quality, reading).await?;
            connection.close().await;
            Ok(())
        })
        .await?;
    hand::emptied(&trial, &session, filters).await
}

/// A service, mounted so.
pub(super) async fn service(
    trial: Trial<Mqtt>,
    quality: QoS,
    filters: u64,
    mount: impl FnOnce(&mut BrokerScope<'_, MqttBroker, Tally>, Vec<TopicFilter>) + Send,
) -> Result<(), Failed> {
    let session = hand::filled(&trial, quality, filters).await?;
    let (broker, sources) = waiting(&trial, &session, quality, filters);
    trial
        .timed(hand::fed(
            &trial,
            &session,
            quality,
            service::drain(broker, trial.tally(), |broker| mount(broker, sources)),
        ))
        .await?;
    hand::emptied(&trial, &session, filters).await
}

fn name(trial: &Trial<Mqtt>) -> &'static str {
    trial.transport().name().leak()
}

/// The crate's publisher, from so many tasks, each message confirmed before the next.
pub(super) async fn publish(trial: Trial<Mqtt>, tasks: usize) -> Result<(), Failed> {
    let connection = broker(&trial).connect().await?;
    let (publisher, topic) = (connection.publisher(), name(&trial));
    trial
        .timed(halves::publish(
            publisher,
            topic,
            tasks,
            trial.messages(),
            trial.tally(),
        ))
        .await?;
    connection.close().await;
    Ok(())
}

/// An app's publisher, from so many tasks, each message confirmed before the next.
pub(super) async fn publish_by_app(trial: Trial<Mqtt>, tasks: usize) -> Result<(), Failed> {
    let (broker, topic) = (broker(&trial), name(&trial));
    trial
        .timed(service::publish(broker, topic, tasks, trial.messages(), trial.tally()))
        .await
}

/// The crate's publisher, from so many tasks, so many messages a call.
pub(super) async fn publish_groups(trial: Trial<Mqtt>, tasks: u64, group: u64) -> Result<(), Failed> {
    let connection = broker(&trial).connect().await?;
    let topic = name(&trial);
    let each = trial.messages() / tasks;
    trial
        .timed(async {
            let mut running = JoinSet::new();
            for _ in 0..tasks {
                let (publisher, tally) = (connection.publisher(), trial.tally());
                running.spawn(async move {
                    let order = work::noted_order();
                    let mut left = each;
                    while left > 0 {
                        let count = left.min(group);
                        let bodies: Vec<_> = (0..count).map(|_| work::encoded(&order)).collect();
                        let outgoing: Vec<_> = bodies.iter().map(|body| Outgoing::new(topic, body)).collect();
                        publisher.publish(&outgoing).await?;
                        tally.many(count);
                        left -= count;
                    }
                    Ok::<(), Failed>(())
                });
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await?;
    connection.close().await;
    Ok(())
}

/// An app's publisher, from so many tasks, so many messages a call.
pub(super) async fn publish_groups_by_app(trial: Trial<Mqtt>, tasks: u64, group: u64) -> Result<(), Failed> {
    let (broker, topic) = (broker(&trial), name(&trial));
    let each = trial.messages() / tasks;
    trial
        .timed(async {
            let app = RustStream::new(AppInfo::new("bench", "0")).with_broker(broker, |_| {});
            let service = app.start().await?;
            let mut running = JoinSet::new();
            for _ in 0..tasks {
                let (publisher, tally) = (service.publisher(), trial.tally());
                running.spawn(async move {
                    let orders: Vec<_> = (0..group).map(|_| work::noted_order()).collect();
                    let mut left = each;
                    while left > 0 {
                        let count = left.min(group);
                        publisher.publish_many(topic, &orders[..count as usize]).await?;
                        tally.many(count);
                        left -= count;
                    }
                    Ok::<(), Failed>(())
                });
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            Ok(service.shutdown().await?)
        })
        .await
}

//! What one writes by hand on lapin.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection};
use ruststream_lapin::QueueType;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{PREFETCH, Rabbit, declare};
use crate::scenarios::work;
use crate::suite::{Failed, Tally, Trial};

/// How many messages are on their way at a time when a queue is filled.
const FILL: u64 = 1000;

/// Takes, handles and acks messages, `chunk` of them by one ack, until none is left.
pub(super) async fn drain(trial: Trial<Rabbit>, queue_type: QueueType, chunk: u64) -> Result<(), Failed> {
    let connection = trial.transport().connection().await?;
    let queue = filled(&trial, &connection, queue_type).await?;
    let channel = connection.create_channel().await?;
    let (tally, name, messages) = (trial.tally(), queue.clone(), trial.messages());
    trial
        .timed(async { tokio::spawn(reader(channel, name, chunk, tally, messages)).await? })
        .await?;
    emptied(&trial, &connection, &queue, queue_type).await
}

async fn reader(channel: Channel, queue: String, chunk: u64, tally: Tally, messages: u64) -> Result<(), Failed> {
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let mut consumer = channel
        .basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default())
        .await?;
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery?;
        work::handle(work::decoded(&delivery.data)?);
        tally.one();
        let done = tally.count();
        if chunk == 1 {
            delivery.ack(BasicAckOptions::default()).await?;
        } else if done.is_multiple_of(chunk) || done == messages {
            delivery.ack(BasicAckOptions { multiple: true }).await?;
        }
        if done == messages {
            break;
        }
    }
    Ok(channel.close(200, "done".into()).await?)
}

/// So many tasks publish their part of the messages, on one channel, and await each confirm before the next.
pub(super) async fn publish(trial: Trial<Rabbit>, tasks: u64) -> Result<(), Failed> {
    let connection = trial.transport().connection().await?;
    let channel = confirming(&connection).await?;
    let queue = trial.transport().name();
    declare(&channel, &queue, QueueType::Classic).await?;
    let each = trial.messages() / tasks;
    trial
        .timed(async {
            let mut running = JoinSet::new();
            for _ in 0..tasks {
                let (channel, queue, tally) = (channel.clone(), queue.clone(), trial.tally());
                running.spawn(async move {
                    let order = work::noted_order();
                    for _ in 0..each {
                        send(&channel, &queue, &work::encoded(&order)).await?;
                        tally.one();
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
    stored(&trial, &connection, &queue).await
}

/// Publishes groups of messages: all of a group are on their way before the first confirm is awaited.
pub(super) async fn publish_many(trial: Trial<Rabbit>, group: u64) -> Result<(), Failed> {
    let connection = trial.transport().connection().await?;
    let channel = confirming(&connection).await?;
    let queue = trial.transport().name();
    declare(&channel, &queue, QueueType::Classic).await?;
    trial
        .timed(async {
            let order = work::noted_order();
            let tally = trial.tally();
            while tally.count() < trial.messages() {
                let count = group.min(trial.messages() - tally.count());
                let bodies: Vec<_> = (0..count).map(|_| work::encoded(&order)).collect();
                try_join_all(bodies.iter().map(|body| send(&channel, &queue, body))).await?;
                tally.many(count);
            }
            Ok(())
        })
        .await?;
    stored(&trial, &connection, &queue).await
}

async fn send(channel: &Channel, queue: &str, body: &[u8]) -> Result<(), Failed> {
    let options = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let properties = BasicProperties::default().with_delivery_mode(2);
    let confirm = channel
        .basic_publish("".into(), queue.into(), options, body, properties)
        .await?
        .await?;
    if confirm.is_ack() && confirm.take_message().is_none() {
        Ok(())
    } else {
        Err("a message was not stored".into())
    }
}

async fn confirming(connection: &Connection) -> Result<Channel, Failed> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// A queue with the messages of the trial.
pub(super) async fn filled(
    trial: &Trial<Rabbit>,
    connection: &Connection,
    queue_type: QueueType,
) -> Result<String, Failed> {
    let queue = trial.transport().name();
    let channel = confirming(connection).await?;
    declare(&channel, &queue, queue_type).await?;
    let body = work::body();
    let mut left = trial.messages();
    while left > 0 {
        let count = left.min(FILL);
        try_join_all((0..count).map(|_| send(&channel, &queue, &body))).await?;
        left -= count;
    }
    channel.close(200, "done".into()).await?;
    Ok(queue)
}

/// Expects a queue without messages, those unacked included, and deletes it.
pub(super) async fn emptied(
    trial: &Trial<Rabbit>,
    connection: &Connection,
    queue: &str,
    queue_type: QueueType,
) -> Result<(), Failed> {
    let channel = connection.create_channel().await?;
    // A quorum queue takes in acks a moment after it got them.
    let mut left = declare(&channel, queue, queue_type).await?;
    for _ in 0..1000 {
        if left == 0 {
            break;
        }
        sleep(Duration::from_millis(20)).await;
        left = declare(&channel, queue, queue_type).await?;
    }
    trial.expect("messages left", left, 0)?;
    delete(&channel, connection, queue).await
}

/// Expects the messages of the trial in a queue, and deletes it.
pub(super) async fn stored(trial: &Trial<Rabbit>, connection: &Connection, queue: &str) -> Result<(), Failed> {
    let channel = connection.create_channel().await?;
    let stored = declare(&channel, queue, QueueType::Classic).await?;
    trial.expect("messages stored", stored, trial.messages())?;
    delete(&channel, connection, queue).await
}

async fn delete(channel: &Channel, connection: &Connection, queue: &str) -> Result<(), Failed> {
    channel
        .queue_delete(queue.into(), QueueDeleteOptions::default())
        .await?;
    Ok(connection.close(200, "done".into()).await?)
}

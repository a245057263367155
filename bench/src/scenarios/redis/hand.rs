//! What one writes by hand on fred.

use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::interfaces::{
    ClientLike as _, EventInterface as _, KeysInterface as _, ListInterface as _, PubsubInterface as _,
    StreamsInterface as _, TransactionInterface as _,
};
use fred::types::config::PerformanceConfig;
use fred::types::lists::LMoveDirection;
use fred::types::streams::XReadResponse;
use tokio::task::JoinSet;

use super::channels::AT_MOST;
use super::channels::By;
use super::place::Place;
use super::{GROUP, Redis, left};
use crate::scenarios::work;
use crate::suite::{Failed, Tally, Trial};

/// The field of an entry that bears the payload.
const PAYLOAD: &str = "payload";

/// How many entries are added by one pipeline when a stream is filled.
const FILL: u64 = 512;

/// Reads `chunk` entries at a time, handles and acks them, until none is left.
pub(super) async fn drain(trial: Trial<Redis>, place: Place, chunk: usize) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let stream = filled(&trial, &client).await?;
    let reading = trial.transport().client(place).await?;
    let tally = trial.tally();
    let key = stream.clone();
    trial
        .timed(async { tokio::spawn(reader(reading, key, chunk, tally, trial.messages())).await? })
        .await?;
    trial.expect("messages left", left(&client, &stream).await?, 0)?;
    let _: () = client.del(stream).await?;
    Ok(client.quit().await?)
}

async fn reader(client: Client, stream: String, chunk: usize, tally: Tally, messages: u64) -> Result<(), Failed> {
    while tally.count() < messages {
        let read: XReadResponse<Str, Str, Str, bytes::Bytes> = client
            .xreadgroup_map(GROUP, "one", Some(chunk as u64), None, false, &stream, ">")
            .await?;
        let mut ids = Vec::with_capacity(chunk);
        for (id, fields) in read.into_values().flatten() {
            let payload = fields.get(PAYLOAD).ok_or("an entry without a payload")?;
            work::handle(work::decoded(payload)?);
            tally.one();
            ids.push(id);
        }
        let _: () = client.xack(&stream, GROUP, ids).await?;
    }
    Ok(client.quit().await?)
}

/// Reads, handles and acks one entry at a time, and counts it: one command behind the other, or in a transaction.
pub(super) async fn drain_with_commands(trial: Trial<Redis>, place: Place, is_atomic: bool) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let stream = filled(&trial, &client).await?;
    let (reading, key, tally) = (trial.transport().client(place).await?, stream.clone(), trial.tally());
    let messages = trial.messages();
    let counter = format!("{stream}-count");
    let loops = async move {
        while tally.count() < messages {
            let read: XReadResponse<Str, Str, Str, bytes::Bytes> = reading
                .xreadgroup_map(GROUP, "one", Some(1), None, false, &key, ">")
                .await?;
            for (id, fields) in read.into_values().flatten() {
                let payload = fields.get(PAYLOAD).ok_or("an entry without a payload")?;
                work::handle(work::decoded(payload)?);
                tally.one();
                if is_atomic {
                    let transaction = reading.multi();
                    let _: () = transaction.incr(&counter).await?;
                    let _: () = transaction.xack(&key, GROUP, id).await?;
                    let _: (i64, i64) = transaction.exec(true).await?;
                } else {
                    let pipeline = reading.pipeline();
                    let _: () = pipeline.incr(&counter).await?;
                    let _: () = pipeline.xack(&key, GROUP, id).await?;
                    let _: (i64, i64) = pipeline.all().await?;
                }
            }
        }
        Ok::<(), Failed>(reading.quit().await?)
    };
    trial.timed(async { tokio::spawn(loops).await? }).await?;
    counted(&trial, client, &stream).await
}

/// Nothing is left, and all were counted.
pub(super) async fn counted(trial: &Trial<Redis>, client: Client, stream: &str) -> Result<(), Failed> {
    trial.expect("messages left", left(&client, stream).await?, 0)?;
    let counted: u64 = client.get(format!("{stream}-count")).await?;
    trial.expect("messages counted", counted, trial.messages())?;
    let _: () = client.del(vec![stream.to_owned(), format!("{stream}-count")]).await?;
    Ok(client.quit().await?)
}

/// So many tasks add their part of the messages on one client, whose commands share round trips.
pub(super) async fn publish(trial: Trial<Redis>, place: Place, tasks: usize) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let stream = trial.transport().key("orders");
    let each = trial.messages() / tasks as u64;
    trial
        .timed(async {
            let mut running = JoinSet::new();
            for _ in 0..tasks {
                let (client, stream, tally) = (client.clone(), stream.clone(), trial.tally());
                running.spawn(async move {
                    let order = work::noted_order();
                    for _ in 0..each {
                        let body = work::encoded(&order);
                        let _: () = client
                            .xadd(&stream, false, None, "*", (PAYLOAD, body.as_slice()))
                            .await?;
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
    let stored: u64 = client.xlen(&stream).await?;
    trial.expect("messages stored", stored, trial.messages())?;
    let _: () = client.del(stream).await?;
    Ok(client.quit().await?)
}

/// A stream with the messages of the trial, and the group that reads it from the beginning.
pub(super) async fn filled(trial: &Trial<Redis>, client: &Client) -> Result<String, Failed> {
    let stream = trial.transport().key("orders");
    let body = bytes::Bytes::from(work::body());
    let mut left = trial.messages();
    while left > 0 {
        let count = left.min(FILL);
        let pipeline = client.pipeline();
        for _ in 0..count {
            let _: () = pipeline
                .xadd(&stream, false, None, "*", (PAYLOAD, body.clone()))
                .await?;
        }
        let _: Vec<String> = pipeline.all().await?;
        left -= count;
    }
    let _: () = client.xgroup_create(&stream, GROUP, "0", true).await?;
    Ok(stream)
}

/// Moves one message at a time to a list of its own, handles and removes it, until none is left.
pub(super) async fn empty_list(trial: Trial<Redis>, place: Place) -> Result<(), Failed> {
    let client = trial.transport().client(place).await?;
    let list = filled_list(&trial, &client).await?;
    let (reading, tally, messages) = (trial.transport().client(place).await?, trial.tally(), trial.messages());
    let (from, own) = (list.clone(), format!("{list}-own"));
    let loops = async move {
        while tally.count() < messages {
            let value: bytes::Bytes = reading
                .blmove(&from, &own, LMoveDirection::Right, LMoveDirection::Left, 1.0)
                .await?;
            work::handle(work::decoded(&value)?);
            tally.one();
            let _: () = reading.lrem(&own, 1, value).await?;
        }
        Ok::<(), Failed>(reading.quit().await?)
    };
    trial.timed(async { tokio::spawn(loops).await? }).await?;
    let left: u64 = client.llen(&list).await?;
    let own: u64 = client.llen(format!("{list}-own")).await?;
    trial.expect("messages left", left + own, 0)?;
    Ok(client.quit().await?)
}

/// A list with the messages of the trial.
pub(super) async fn filled_list(trial: &Trial<Redis>, client: &Client) -> Result<String, Failed> {
    let list = trial.transport().key("jobs");
    let body = bytes::Bytes::from(work::body());
    let mut left = trial.messages();
    while left > 0 {
        let count = left.min(FILL);
        let values = vec![body.clone(); usize::try_from(count)?];
        let _: () = client.lpush(&list, values).await?;
        left -= count;
    }
    Ok(list)
}

/// Listens to a channel, or to all that match, while another task publishes.
pub(super) async fn listen(trial: Trial<Redis>, place: Place, by: By) -> Result<(), Failed> {
    let performance = PerformanceConfig {
        broadcast_channel_capacity: usize::try_from(AT_MOST)?,
        ..PerformanceConfig::default()
    };
    let listener = trial.transport().servers.client(place, performance).await?;
    let channel = trial.transport().key("news");
    let mut heard = listener.message_rx();
    match by {
        By::Name => listener.subscribe(&channel).await?,
        By::Pattern => listener.psubscribe(format!("{channel}*")).await?,
        By::Shard => listener.ssubscribe(&channel).await?,
    }
    let _: () = listener.ping(None).await?;
    let (tally, messages) = (trial.tally(), trial.messages());
    let loops = async move {
        while tally.count() < messages {
            let message = heard.recv().await?;
            let payload = message.value.into_bytes().ok_or("a message without a payload")?;
            work::handle(work::decoded(&payload)?);
            tally.one();
        }
        Ok::<(), Failed>(())
    };
    let publishing = tokio::spawn(publish_all(
        trial.transport().client(place).await?,
        channel,
        by,
        messages,
    ));
    trial.timed(async { tokio::spawn(loops).await? }).await?;
    publishing.await??;
    Ok(listener.quit().await?)
}

/// Publishes so many messages, as fast as pipelines go.
pub(super) async fn publish_all(client: Client, channel: String, by: By, messages: u64) -> Result<(), Failed> {
    let body = bytes::Bytes::from(work::body());
    let mut left = messages;
    while left > 0 {
        let count = left.min(FILL);
        let pipeline = client.pipeline();
        for _ in 0..count {
            let _: () = match by {
                By::Shard => pipeline.spublish(&channel, body.clone()).await?,
                By::Name | By::Pattern => pipeline.publish(&channel, body.clone()).await?,
            };
        }
        let _: Vec<i64> = pipeline.all().await?;
        left -= count;
    }
    Ok(client.quit().await?)
}

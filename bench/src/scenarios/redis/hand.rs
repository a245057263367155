//! What one writes by hand on fred.

use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::interfaces::{
    ClientLike as _, EventInterface as _, KeysInterface as _, ListInterface as _, PubsubInterface as _,
    StreamsInterface as _,
};
use fred::types::config::PerformanceConfig;
use fred::types::lists::LMoveDirection;
use fred::types::streams::XReadResponse;
use tokio::task::JoinSet;

use super::channels::AT_MOST;
use super::{GROUP, Redis, left};
use crate::scenarios::work;
use crate::suite::{Failed, Tally, Trial};

/// The field of an entry that bears the payload.
const PAYLOAD: &str = "payload";

/// How many entries are added by one pipeline when a stream is filled.
const FILL: u64 = 512;

/// Reads `chunk` entries at a time, handles and acks them, until none is left.
pub(super) async fn drain(trial: Trial<Redis>, chunk: usize) -> Result<(), Failed> {
    let client = trial.transport().client().await?;
    let stream = filled(&trial, &client).await?;
    let reading = trial.transport().client().await?;
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

/// So many tasks add their part of the messages on one client, whose commands share round trips.
pub(super) async fn publish(trial: Trial<Redis>, tasks: usize) -> Result<(), Failed> {
    let client = trial.transport().client().await?;
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
pub(super) async fn empty_list(trial: Trial<Redis>) -> Result<(), Failed> {
    let client = trial.transport().client().await?;
    let list = filled_list(&trial, &client).await?;
    let (reading, tally, messages) = (trial.transport().client().await?, trial.tally(), trial.messages());
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
pub(super) async fn listen(trial: Trial<Redis>, by_pattern: bool) -> Result<(), Failed> {
    let performance = PerformanceConfig {
        broadcast_channel_capacity: usize::try_from(AT_MOST)?,
        ..PerformanceConfig::default()
    };
    let listener = trial.transport().client_for(performance).await?;
    let channel = trial.transport().key("news");
    let mut heard = listener.message_rx();
    if by_pattern {
        listener.psubscribe(format!("{channel}*")).await?;
    } else {
        listener.subscribe(&channel).await?;
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
    let publishing = tokio::spawn(publish_all(trial.transport().client().await?, channel, messages));
    trial.timed(async { tokio::spawn(loops).await? }).await?;
    publishing.await??;
    Ok(listener.quit().await?)
}

/// Publishes so many messages, as fast as pipelines go.
pub(super) async fn publish_all(client: Client, channel: String, messages: u64) -> Result<(), Failed> {
    let body = bytes::Bytes::from(work::body());
    let mut left = messages;
    while left > 0 {
        let count = left.min(FILL);
        let pipeline = client.pipeline();
        for _ in 0..count {
            let _: () = pipeline.publish(&channel, body.clone()).await?;
        }
        let _: Vec<i64> = pipeline.all().await?;
        left -= count;
    }
    Ok(client.quit().await?)
}

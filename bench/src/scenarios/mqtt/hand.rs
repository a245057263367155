//! What one writes by hand on rumqttc.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rumqttc::mqttbytes::v4;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, Publish};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::{AHEAD, Mqtt};
use crate::scenarios::work;
use crate::suite::{Failed, Tally, Trial};

/// What the last message of a topic says when a loop is over.
const LAST: &[u8] = b"last";

/// How many messages of QoS 0 are sent at a time, and how many are on their way at most when that is done again.
const PIECE: u64 = 256;
const FAR: u64 = 1024;

/// A connection as one would make it by hand: a client, and its event loop.
pub(super) struct Link {
    pub(super) client: AsyncClient,
    // Large, and moved from task to task.
    events: Box<EventLoop>,
}

impl Link {
    /// Connects. A session that is not `clean` outlives the link; messages are acknowledged by hand where `manual`.
    pub(super) async fn open(transport: &Mqtt, session: &str, clean: bool, manual: bool) -> Result<Self, Failed> {
        let mut options = MqttOptions::new(session, "127.0.0.1", transport.server.port());
        options
            .set_clean_start(clean)
            .set_session_expiry_interval(Some(if clean { 0 } else { 3600 }))
            .set_receive_maximum(Some(AHEAD))
            .set_outgoing_inflight_upper_limit(1024)
            .set_manual_acks(manual);
        let (client, events) = AsyncClient::new(options, usize::from(AHEAD) * 2);
        let mut link = Self {
            client,
            events: Box::new(events),
        };
        while !matches!(link.next().await?, Packet::ConnAck(_)) {}
        Ok(link)
    }

    /// The next packet that comes.
    async fn next(&mut self) -> Result<Packet, Failed> {
        loop {
            if let Event::Incoming(packet) = self.events.poll().await? {
                return Ok(packet);
            }
        }
    }

    async fn message(&mut self) -> Result<Publish, Failed> {
        loop {
            if let Packet::Publish(publish) = self.next().await? {
                return Ok(publish);
            }
        }
    }

    /// Waits for the acknowledgement of what was published.
    pub(super) async fn acknowledged(&mut self) -> Result<(), Failed> {
        while !matches!(self.next().await?, Packet::PubAck(_)) {}
        Ok(())
    }

    async fn subscribed(&mut self, filter: &str, quality: QoS) -> Result<(), Failed> {
        self.client.subscribe(filter, quality).await?;
        while !matches!(self.next().await?, Packet::SubAck(_)) {}
        Ok(())
    }

    /// What the server says of itself.
    pub(super) async fn version(&mut self) -> Result<String, Failed> {
        // It is retained, and may come before the answer to the subscription.
        self.client.subscribe("$SYS/broker/version", QoS::AtMostOnce).await?;
        let said = self.message().await?;
        Ok(String::from_utf8_lossy(&said.payload).replace("mosquitto version", "Mosquitto"))
    }

    /// Says that it goes, and waits until that is written.
    pub(super) async fn end(mut self) -> Result<(), Failed> {
        self.client.disconnect().await?;
        while self.events.poll().await.is_ok() {}
        Ok(())
    }
}

/// A session that has subscribed to a topic of its name, or to many below it; the messages of the trial wait for it, save at QoS 0, where
/// [`fed`] brings them.
pub(super) async fn filled(trial: &Trial<Mqtt>, quality: QoS, filters: u64) -> Result<String, Failed> {
    let session = trial.transport().name();
    let mut link = Link::open(trial.transport(), &session, false, true).await?;
    for number in 0..filters {
        let topic = topic(&session, number, filters);
        link.subscribed(&topic, quality).await?;
    }
    link.end().await?;
    if quality == QoS::AtMostOnce {
        return Ok(session);
    }
    let publisher = Link::open(trial.transport(), &format!("{session}-filling"), true, false).await?;
    let body = work::body();
    let Link { client, events } = publisher;
    let counting = count(events, trial.messages());
    for number in 0..trial.messages() {
        let topic = topic(&session, number % filters, filters);
        client.publish(topic, quality, false, body.clone()).await?;
    }
    counting.await??.end(client).await?;
    Ok(session)
}

/// The topic of a session, or one of its many.
pub(super) fn topic(session: &str, number: u64, filters: u64) -> String {
    if filters == 1 {
        session.to_owned()
    } else {
        format!("{session}/{number}")
    }
}

/// Brings the messages of QoS 0 while `reading` reads them, in pieces that are never far ahead: nobody waits for a slow reader.
pub(super) async fn fed<R>(
    trial: &Trial<Mqtt>,
    session: &str,
    quality: QoS,
    reading: impl Future<Output = Result<R, Failed>>,
) -> Result<R, Failed> {
    if quality != QoS::AtMostOnce {
        return reading.await;
    }
    let mut server = TcpStream::connect(("127.0.0.1", trial.transport().server.port())).await?;
    let mut piece = BytesMut::new();
    let mut greeting = v4::Connect::new(format!("{session}-feeding"));
    greeting.keep_alive = 0;
    greeting.write(&mut piece)?;
    server.write_all(&piece).await?;
    server.read_exact(&mut [0; 4]).await?;
    piece.clear();
    for _ in 0..PIECE {
        v4::Publish::new(session, rumqttc::QoS::AtMostOnce, work::body()).write(&mut piece)?;
    }
    let (tally, messages, size) = (trial.tally(), trial.messages(), piece.len() / PIECE as usize);
    let feeding = tokio::spawn(async move {
        let mut sent = 0;
        while sent < messages {
            let count = PIECE.min(messages - sent);
            server.write_all(&piece[..count as usize * size]).await?;
            sent += count;
            while sent.saturating_sub(tally.count()) > FAR {
                sleep(Duration::from_millis(1)).await;
            }
        }
        server.write_all(&[0xe0, 0]).await?;
        Ok::<(), Failed>(())
    });
    let read = reading.await?;
    feeding.await??;
    Ok(read)
}

/// An event loop that has counted acknowledgements.
struct Counted(Box<EventLoop>);

impl Counted {
    async fn end(mut self, client: AsyncClient) -> Result<(), Failed> {
        client.disconnect().await?;
        while self.0.poll().await.is_ok() {}
        Ok(())
    }
}

/// Drives an event loop until so many acknowledgements, one at the least, have come.
fn count(mut events: Box<EventLoop>, acknowledgements: u64) -> JoinHandle<Result<Counted, Failed>> {
    tokio::spawn(async move {
        let mut left = acknowledgements.max(1);
        while left > 0 {
            if let Event::Incoming(Packet::PubAck(_)) = events.poll().await? {
                left -= 1;
            }
        }
        Ok(Counted(events))
    })
}

/// Expects that nothing waits for a session any more, and ends it.
pub(super) async fn emptied(trial: &Trial<Mqtt>, session: &str, filters: u64) -> Result<(), Failed> {
    let mut link = Link::open(trial.transport(), session, false, false).await?;
    let last = topic(session, 0, filters);
    link.client.publish(last, QoS::AtLeastOnce, false, LAST).await?;
    let mut left = 0;
    while link.message().await?.payload != LAST {
        left += 1;
    }
    trial.expect("messages left", left, 0)?;
    link.end().await?;
    Link::open(trial.transport(), session, true, false).await?.end().await
}

/// How messages are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acks {
    /// Each when it is handled.
    Each,
    /// By the client as it reads them, before they are handled.
    Early,
}

/// Takes, handles and acknowledges messages until none is left.
pub(super) async fn drain(trial: Trial<Mqtt>, quality: QoS, acks: Acks, filters: u64) -> Result<(), Failed> {
    let session = filled(&trial, quality, filters).await?;
    let (tally, messages) = (trial.tally(), trial.messages());
    let topics = (0..filters).map(|number| topic(&session, number, filters)).collect();
    let transport = trial.transport();
    trial
        .timed(async {
            let link = Link::open(transport, &session, false, acks == Acks::Each).await?;
            let reading = async { tokio::spawn(reader(link, tally, messages, acks, topics)).await? };
            fed(&trial, &session, quality, reading).await
        })
        .await?;
    emptied(&trial, &session, filters).await
}

async fn reader(mut link: Link, tally: Tally, messages: u64, acks: Acks, topics: Vec<String>) -> Result<(), Failed> {
    // A message is for the handler of its topic.
    let handlers: HashMap<_, fn(work::Order) -> work::Receipt> = topics
        .into_iter()
        .map(|topic| (Bytes::from(topic), work::handle as fn(work::Order) -> work::Receipt))
        .collect();
    while tally.count() < messages {
        let publish = link.message().await?;
        let handler = handlers.get(&publish.topic).ok_or("a message of no subscription")?;
        handler(work::decoded(&publish.payload)?);
        if acks == Acks::Each && publish.qos != QoS::AtMostOnce {
            link.client.ack(&publish).await?;
        }
        tally.one();
    }
    link.end().await
}

/// So many tasks publish their part of the messages and await none: a full window of the client is on its way.
pub(super) async fn publish_pipelined(trial: Trial<Mqtt>, tasks: u64) -> Result<(), Failed> {
    let topic = trial.transport().name();
    let Link { client, events } = Link::open(trial.transport(), &topic, true, false).await?;
    let each = trial.messages() / tasks;
    trial
        .timed(async {
            let counting = count(events, each * tasks);
            let mut running = JoinSet::new();
            for _ in 0..tasks {
                let (client, topic, tally) = (client.clone(), topic.clone(), trial.tally());
                running.spawn(async move {
                    let order = work::noted_order();
                    for _ in 0..each {
                        let body = work::encoded(&order);
                        client.publish(topic.as_str(), QoS::AtLeastOnce, false, body).await?;
                        tally.one();
                    }
                    Ok::<(), Failed>(())
                });
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            counting.await??.end(client).await
        })
        .await
}

/// Those who wait for their acknowledgements, in the order of their publishes.
type Waiting = Arc<Mutex<VecDeque<oneshot::Sender<()>>>>;

/// So many tasks publish their part of the messages, each acknowledged before the next. The client does not tell whose an acknowledgement
/// is; those of QoS 1 come in the order of the publishes.
pub(super) async fn publish_each(trial: Trial<Mqtt>, tasks: u64) -> Result<(), Failed> {
    let topic = trial.transport().name();
    let Link { client, mut events } = Link::open(trial.transport(), &topic, true, false).await?;
    let each = trial.messages() / tasks;
    let waiting = Waiting::default();
    trial
        .timed(async {
            let acknowledged = waiting.clone();
            let driving = tokio::spawn(async move {
                let mut left = each * tasks;
                while left > 0 {
                    if let Event::Incoming(Packet::PubAck(_)) = events.poll().await? {
                        left -= 1;
                        let waits = acknowledged.lock().await.pop_front().ok_or("nobody waits")?;
                        waits.send(()).map_err(|()| "nobody waits any more")?;
                    }
                }
                Ok::<_, Failed>(Counted(events))
            });
            let mut running = JoinSet::new();
            for _ in 0..tasks {
                let (client, topic, tally) = (client.clone(), topic.clone(), trial.tally());
                let waiting = waiting.clone();
                running.spawn(async move {
                    let order = work::noted_order();
                    for _ in 0..each {
                        let body = work::encoded(&order);
                        let (told, done) = oneshot::channel();
                        let mut waiting = waiting.lock().await;
                        waiting.push_back(told);
                        client.publish(topic.as_str(), QoS::AtLeastOnce, false, body).await?;
                        drop(waiting);
                        done.await?;
                        tally.one();
                    }
                    Ok::<(), Failed>(())
                });
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            driving.await??.end(client).await
        })
        .await
}

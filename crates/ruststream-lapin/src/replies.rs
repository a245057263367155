//! Direct reply-to: places for replies that need no queue; <https://www.rabbitmq.com/docs/direct-reply-to>.
//!
//! The server gives the channel that reads replies an address of its own, which ends with it. So requests name their place, and the
//! address is put in as they are sent. With a new channel there is a new address: requests that were not answered are sent again with
//! it, since their answers would go to the old one, where nobody hears them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel};
use ruststream::transport::{ErrorKind, TransportError};
use tokio::time::{Instant, sleep};

use crate::link::{Link, Live};
use crate::outbox::{Letter, Outbox};

/// The name that a channel consumes to read its replies.
pub(crate) const DIRECT: &str = "amq.rabbitmq.reply-to";
/// What the server's addresses for replies begin with.
const ADDRESS: &str = "amq.rabbitmq.reply-to.";

/// How long a request is kept to be sent again. Whoever waits longer has to ask again himself.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// How long requests wait that could not be sent again.
const AGAIN: Duration = Duration::from_millis(200);
/// The most requests that are kept, and the most bytes of payload.
const MOST_KEPT: usize = 4096;
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// Whether it is such an address. The server says of it that it is no queue, whether someone reads there or not.
pub(crate) fn is_address(destination: &str) -> bool {
    destination.starts_with(ADDRESS)
}

/// The places for replies of a connection.
#[derive(Default)]
pub(crate) struct Replies {
    places: Mutex<HashMap<String, Place>>,
}

#[derive(Default)]
struct Place {
    address: ShortString,
    /// Requests that are not answered, by correlation id.
    asked: HashMap<ShortString, Asked>,
    /// The same, oldest first; those that are answered too, for a while.
    order: VecDeque<(Instant, ShortString)>,
    bytes: usize,
}

/// A request that is not answered.
#[derive(Clone)]
struct Asked {
    exchange: String,
    routing_key: String,
    mandatory: bool,
    properties: BasicProperties,
    payload: Vec<u8>,
}

impl Place {
    fn forget(&mut self, correlation: &ShortString) {
        if let Some(asked) = self.asked.remove(correlation) {
            self.bytes -= asked.payload.len();
        }
    }

    /// Lets go of the oldest, as far as there are too many or they are too old.
    fn limit(&mut self, now: Instant) {
        while let Some((when, correlation)) = self.order.front()
            && (now.duration_since(*when) > KEPT_FOR || self.order.len() > MOST_KEPT || self.bytes > MOST_BYTES)
        {
            let correlation = correlation.clone();
            self.order.pop_front();
            self.forget(&correlation);
        }
    }
}

impl Replies {
    fn places(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the address of its place into a letter that asks for a reply at one of these places, and keeps it.
    pub(crate) fn address(&self, letter: &mut Letter<'_>) {
        let Some(place) = letter.properties.reply_to() else {
            return;
        };
        let mut places = self.places();
        let Some(place) = places.get_mut(place.as_str()) else {
            return;
        };
        letter.properties = letter.properties.clone().with_reply_to(place.address.clone());
        let Some(correlation) = letter.properties.correlation_id().clone() else {
            return;
        };
        let now = Instant::now();
        place.forget(&correlation);
        place.bytes += letter.payload.len();
        let asked = Asked {
            exchange: letter.exchange.to_string(),
            routing_key: letter.routing_key.to_string(),
            mandatory: letter.mandatory,
            properties: letter.properties.clone(),
            payload: letter.payload.to_vec(),
        };
        place.asked.insert(correlation.clone(), asked);
        place.order.push_back((now, correlation));
        place.limit(now);
    }

    /// Forgets a request that was not sent.
    pub(crate) fn unsent(&self, letter: &Letter<'_>) {
        let properties = &letter.properties;
        if let (Some(address), Some(correlation)) = (properties.reply_to(), properties.correlation_id())
            && is_address(address.as_str())
            && let Some(place) = self.places().values_mut().find(|place| place.address == *address)
        {
            place.forget(correlation);
        }
    }

    /// Forgets a request whose answer came.
    pub(crate) fn answered(&self, place: &str, answer: &BasicProperties) {
        if let Some(correlation) = answer.correlation_id()
            && let Some(place) = self.places().get_mut(place)
        {
            place.forget(correlation);
        }
    }

    /// Forgets a place that is read no more.
    pub(crate) fn leave(&self, place: &str) {
        self.places().remove(place);
    }

    /// Gives a place its new address.
    fn enter(&self, place: &str, address: &ShortString) {
        self.places().entry(place.to_owned()).or_default().address = address.clone();
    }

    /// The requests that wait for an answer and asked for it elsewhere than at the address that their place has now; with that address.
    fn astray(&self, place: &str) -> Vec<Asked> {
        let mut places = self.places();
        let Some(place) = places.get_mut(place) else {
            return Vec::new();
        };
        place.limit(Instant::now());
        let address = Some(place.address.clone());
        let order = place.order.iter();
        let asked = order.filter_map(|(_, correlation)| place.asked.get(correlation));
        let astray = asked.filter(|asked| *asked.properties.reply_to() != address);
        let with_address = |asked: &Asked| Asked {
            properties: asked.properties.clone().with_reply_to(place.address.clone()),
            ..asked.clone()
        };
        astray.map(with_address).collect()
    }

    /// Notes that a request was sent again.
    fn sent_again(&self, place: &str, again: Asked) {
        if let Some(correlation) = again.properties.correlation_id().clone()
            && let Some(place) = self.places().get_mut(place)
            && let Some(known) = place.asked.get_mut(&correlation)
        {
            *known = again;
        }
    }
}

/// Learns the address of the channel, which reads its replies already, and sends again what waits for an answer.
pub(crate) async fn enter(
    outbox: &Arc<Outbox>,
    live: &Live,
    channel: &Channel,
    place: &str,
) -> Result<(), TransportError> {
    let address = address_of(&outbox.consuming, live, channel).await?;
    outbox.replies.enter(place, &address);
    if !outbox.replies.astray(place).is_empty() {
        let (outbox, place) = (outbox.clone(), place.to_owned());
        tokio::spawn(async move { ask_again(&outbox, &place).await });
    }
    Ok(())
}

/// Sends again what asked for its answer at an address that is lost, until all is sent or too old.
async fn ask_again(outbox: &Outbox, place: &str) {
    loop {
        let again = outbox.replies.astray(place);
        if again.is_empty() {
            return;
        }
        let letters: Vec<_> = again
            .iter()
            .map(|asked| Letter {
                exchange: asked.exchange.as_str().into(),
                routing_key: asked.routing_key.as_str().into(),
                mandatory: asked.mandatory,
                together: false,
                properties: asked.properties.clone(),
                payload: &asked.payload,
            })
            .collect();
        let failures = outbox.send(&letters).await;
        drop(letters);
        if failures.iter().any(|(_, error)| error.kind() == ErrorKind::Closed) {
            return;
        }
        for (number, asked) in again.into_iter().enumerate() {
            match failures.iter().find(|(failed, _)| *failed == number) {
                Some((_, error)) if error.is_transient() => {
                    tracing::debug!(%error, "a request is sent again later");
                }
                // What is refused for good is answered by its deadline.
                _ => outbox.replies.sent_again(place, asked),
            }
        }
        sleep(AGAIN).await;
    }
}

/// A message to oneself shows the address: the server writes it into each that leaves this channel.
async fn address_of(link: &Link, live: &Live, channel: &Channel) -> Result<ShortString, TransportError> {
    let what = "a place for direct replies";
    // Read on a channel of its own: on the other it would have the number of the first reply.
    let mirror = link.channel(live).await?;
    let alone = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let declaring = mirror.queue_declare("".into(), alone, FieldTable::default());
    let queue = link.call(live, what, declaring).await?.name().clone();
    let no_acks = BasicConsumeOptions {
        no_ack: true,
        ..BasicConsumeOptions::default()
    };
    let consuming = mirror.basic_consume(queue.clone(), "".into(), no_acks, FieldTable::default());
    let mut consumer = link.call(live, what, consuming).await?;
    let properties = BasicProperties::default().with_reply_to(DIRECT.into());
    let sending = channel.basic_publish("".into(), queue, BasicPublishOptions::default(), b"", properties);
    link.call(live, what, sending).await?;
    let coming = async { consumer.next().await.transpose() };
    let message = link.call(live, what, coming).await?;
    link.call(live, what, mirror.close(200, "done".into())).await?;
    let address = message.and_then(|message| message.properties.reply_to().clone());
    address.filter(|address| is_address(address.as_str())).ok_or_else(|| {
        let text = format!("{what}: the server gives no address; it has to be RabbitMQ 3.4 or later");
        TransportError::new(ErrorKind::Incompatible, text)
    })
}

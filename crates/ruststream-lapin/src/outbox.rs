//! Everything that is published: messages, copies for retries, dead letters. Each is confirmed by the server.
//!
//! A group of messages has a channel to itself until all of it is answered: lapin gives what the server returned as unroutable
//! to whichever confirm of the channel comes next, and on a channel of its own that is always one of the same group.

use std::borrow::Cow;
use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::{BasicProperties, Channel, Confirmation};
use ruststream::transport::{ErrorKind, TransportError};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::delay::DelayQueues;
use crate::error;
use crate::exchanges::Exchanges;
use crate::link::{Link, Live, Purpose};
use crate::queue::Spec;
use crate::replies::Replies;
use crate::settings::Settings;
use crate::transaction::TransactionChannel;

/// How many groups are under way at a time; each has a channel, of which a connection has 2,047 by the server's default.
const MOST_CHANNELS: usize = 256;

/// One message, ready to be sent.
pub(crate) struct Letter<'a> {
    pub(crate) exchange: Cow<'a, str>,
    pub(crate) routing_key: Cow<'a, str>,
    /// Whether a message that reaches no queue is an error.
    pub(crate) mandatory: bool,
    /// Whether it is sent in one transaction with others.
    pub(crate) together: bool,
    pub(crate) properties: BasicProperties,
    pub(crate) payload: &'a [u8],
}

impl<'a> Letter<'a> {
    /// A letter right into a queue.
    pub(crate) fn to_queue(queue: impl Into<Cow<'a, str>>, properties: BasicProperties, payload: &'a [u8]) -> Self {
        Self {
            exchange: Cow::Borrowed(""),
            routing_key: queue.into(),
            mandatory: true,
            together: false,
            properties,
            payload,
        }
    }

    fn place(&self) -> String {
        match (&*self.exchange, &*self.routing_key) {
            ("", queue) => format!("queue `{queue}`"),
            (exchange, key) => format!("exchange `{exchange}`, routing key `{key}`"),
        }
    }

    /// Whether it is the message that the server gave back.
    pub(crate) fn is(&self, returned: &BasicReturnMessage) -> bool {
        self.mandatory
            && returned.exchange.as_str() == self.exchange
            && returned.routing_key.as_str() == self.routing_key
            && returned.data == self.payload
            && returned.properties == self.properties
    }
}

/// The links of a connection, and what is published on them.
pub(crate) struct Outbox {
    pub(crate) settings: Arc<Settings>,
    pub(crate) publishing: Link,
    pub(crate) consuming: Link,
    pub(crate) delays: DelayQueues,
    pub(crate) exchanges: Exchanges,
    pub(crate) replies: Replies,
    idle: Mutex<Vec<ConfirmChannel>>,
    /// Channels for transactions.
    transactions: Mutex<Vec<TransactionChannel>>,
    permits: Semaphore,
    /// Queues for dead letters that are known to be there.
    known: Mutex<HashSet<String>>,
}

/// A channel whose publishes are confirmed, and none of which waits for its confirm.
struct ConfirmChannel {
    channel: Channel,
    live: Arc<Live>,
}

impl ConfirmChannel {
    fn stands(&self) -> bool {
        self.live.stands() && self.channel.status().connected()
    }
}

impl Outbox {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self {
            publishing: Link::new(settings.clone(), Purpose::Publishing),
            consuming: Link::new(settings.clone(), Purpose::Consuming),
            settings,
            delays: DelayQueues::default(),
            exchanges: Exchanges::default(),
            replies: Replies::default(),
            idle: Mutex::default(),
            transactions: Mutex::default(),
            permits: Semaphore::new(MOST_CHANNELS),
            known: Mutex::default(),
        }
    }

    pub(crate) async fn close(&self) {
        self.idle().clear();
        self.transactions().clear();
        tokio::join!(self.publishing.close(), self.consuming.close());
    }

    /// Sends letters in order and awaits the server's word on each. What failed is told by its place among the letters.
    pub(crate) async fn send(&self, letters: &[Letter<'_>]) -> Vec<(usize, TransportError)> {
        let deadline = Instant::now() + self.settings.publish_timeout;
        let mut failures = Vec::new();
        let mut first = 0;
        // The server closes a channel over an exchange that is missing or forbidden: the others are spared that.
        for group in letters.chunk_by(|one, next| one.exchange == next.exchange) {
            if let Err(error) = self.send_group(group, first, deadline, &mut failures).await {
                let each = first..first + group.len();
                failures.extend(each.map(|place| (place, error::again(&error))));
            }
            first += group.len();
        }
        failures
    }

    async fn send_group(
        &self,
        group: &[Letter<'_>],
        first: usize,
        deadline: Instant,
        failures: &mut Vec<(usize, TransportError)>,
    ) -> Result<(), TransportError> {
        let (channel, permit) = self.take(deadline).await?;
        let Answers { answers, late } = answers(&channel.channel, group, deadline).await;
        let blocked = channel.live.blocked();
        if late && blocked.is_none() {
            self.publishing.discard(&channel.live);
        }
        let closing = answers.iter().flatten().find_map(|answer| {
            let error = answer.as_ref().err()?;
            error.is_amqp_error().then(|| error.clone())
        });
        let mut returned = Vec::new();
        for (place, answer) in answers.into_iter().enumerate() {
            let letter = &group[place];
            let error = match answer {
                Some(Ok(confirmation)) => {
                    let refused = confirmation.is_nack();
                    returned.extend(confirmation.take_message());
                    if !refused {
                        continue;
                    }
                    let text = format!(
                        "{} on {} takes no more: it has reached its limit, or is about to move",
                        letter.place(),
                        self.settings.label
                    );
                    TransportError::new(ErrorKind::Refused, text)
                }
                Some(Err(error)) => self.failed(letter, error, closing.as_ref()),
                None => match &blocked {
                    Some(reason) => self.is_blocked(reason),
                    None => error::late(
                        &format!("publishing to {} on {}", letter.place(), self.settings.label),
                        self.settings.publish_timeout,
                    ),
                },
            };
            failures.push((first + place, error));
        }
        for returned in returned {
            let failed = |place| failures.iter().any(|(known, _)| *known == first + place);
            let place = (0..group.len()).find(|place| group[*place].is(&returned) && !failed(*place));
            if let Some(place) = place {
                failures.push((first + place, unroutable(&group[place], &self.settings.label)));
            }
        }
        if !late && channel.stands() {
            self.idle().push(channel);
        }
        drop(permit);
        Ok(())
    }

    /// What the failure of one letter says, on a channel that the server may have closed over another.
    fn failed(&self, letter: &Letter<'_>, error: lapin::Error, closing: Option<&lapin::Error>) -> TransportError {
        let what = format!("publishing to {} on {}", letter.place(), self.settings.label);
        let error = match closing {
            Some(closing) => closing.clone(),
            None => error,
        };
        let told = error::from_lapin(error, &what);
        match largest(&told) {
            Some(most) if letter.payload.len() as u64 <= most => TransportError::new(
                ErrorKind::Unavailable,
                format!(
                    "{what}: it may not have been stored, since the server closed the channel over a message that is too large"
                ),
            ),
            _ => told,
        }
    }

    fn is_blocked(&self, reason: &str) -> TransportError {
        let text = format!("{} takes no publishes for now: {reason}", self.settings.label);
        TransportError::new(ErrorKind::Busy, text)
    }

    /// A channel that no one else publishes on.
    async fn take(&self, deadline: Instant) -> Result<(ConfirmChannel, SemaphorePermit<'_>), TransportError> {
        let permit = self.permit(deadline).await?;
        let taking = async {
            let channel = loop {
                let Some(channel) = self.idle().pop() else {
                    break self.open().await?;
                };
                if channel.stands() {
                    break channel;
                }
            };
            Ok::<_, TransportError>(channel)
        };
        let what = || format!("publishing on {}", self.settings.label);
        let channel = timeout_at(deadline, taking)
            .await
            .map_err(|_| error::late(&what(), self.settings.publish_timeout))??;
        if let Some(reason) = channel.live.blocked()
            && timeout_at(deadline, channel.live.unblocked()).await.is_err()
        {
            return Err(self.is_blocked(&reason));
        }
        Ok((channel, permit))
    }

    async fn open(&self) -> Result<ConfirmChannel, TransportError> {
        let live = self.publishing.live().await?;
        let channel = self.publishing.channel(&live).await?;
        let confirming = channel.confirm_select(ConfirmSelectOptions::default());
        self.publishing.call(&live, "asking for confirms", confirming).await?;
        Ok(ConfirmChannel { channel, live })
    }

    pub(crate) fn transactions(&self) -> MutexGuard<'_, Vec<TransactionChannel>> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to use one channel more.
    pub(crate) async fn permit(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, TransportError> {
        match timeout_at(deadline, self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) => Err(error::closed(&self.settings.label)),
            Err(_) => {
                let what = format!("publishing on {}", self.settings.label);
                Err(error::late(&what, self.settings.publish_timeout))
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<ConfirmChannel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that the queue for the dead letters of another is there.
    pub(crate) async fn declare_dead_letters(&self, spec: &Spec) -> Result<(), TransportError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &spec.dead_letters;
        if known().contains(name) {
            return Ok(());
        }
        let live = self.publishing.live().await?;
        let channel = self.publishing.channel(&live).await?;
        // One that is there already is taken as it is: a service may read it, and have declared it in its own way.
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let what = format!("queue `{name}` for dead letters");
        let asking = channel.queue_declare(name.as_str().into(), passive, lapin::types::FieldTable::default());
        if let Err(error) = self.publishing.call(&live, &what, asking).await {
            if !error.is_unroutable() {
                return Err(error);
            }
            let channel = self.publishing.channel(&live).await?;
            let declaring = channel.queue_declare(
                name.as_str().into(),
                QueueDeclareOptions::durable(),
                spec.dead_letter_arguments(),
            );
            self.publishing.call(&live, &what, declaring).await?;
        }
        known().insert(name.clone());
        Ok(())
    }

    /// Forgets what it believed to be there.
    pub(crate) fn forget_dead_letters(&self, spec: &Spec) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&spec.dead_letters);
    }
}

/// The error of a letter that reaches no queue.
pub(crate) fn unroutable(letter: &Letter<'_>, label: &str) -> TransportError {
    let text = match &*letter.exchange {
        "" => format!(
            "there is no queue `{}` on {}: declare it, or correct the name",
            letter.routing_key, label
        ),
        exchange => format!(
            "no queue is bound to exchange `{exchange}` on {} for routing key `{}` and these headers: bind one, or publish \
             without `mandatory`",
            label, letter.routing_key
        ),
    };
    TransportError::new(ErrorKind::Unroutable, text)
}

/// The server's word on each letter; `None` where it did not come in time.
struct Answers {
    answers: Vec<Option<lapin::Result<Confirmation>>>,
    late: bool,
}

async fn answers(channel: &Channel, letters: &[Letter<'_>], deadline: Instant) -> Answers {
    let send = async |letter: &Letter<'_>| {
        let options = BasicPublishOptions {
            mandatory: letter.mandatory,
            ..BasicPublishOptions::default()
        };
        let (exchange, key) = ((*letter.exchange).into(), (*letter.routing_key).into());
        let publishing = channel.basic_publish(exchange, key, options, letter.payload, letter.properties.clone());
        publishing.await?.await
    };
    if let [letter] = letters {
        let answer = timeout_at(deadline, send(letter)).await.ok();
        return Answers {
            late: answer.is_none(),
            answers: vec![answer],
        };
    }
    // All of them are on their way before the first answer is awaited. They are polled, and so sent, in order.
    let mut answers: Vec<_> = letters.iter().map(|_| None).collect();
    let mut pending: FuturesUnordered<_> = letters
        .iter()
        .enumerate()
        .map(async |(place, letter)| (place, send(letter).await))
        .collect();
    let mut over = pin!(sleep_until(deadline));
    loop {
        tokio::select! {
            biased;
            next = pending.next() => match next {
                Some((place, answer)) => answers[place] = Some(answer),
                None => return Answers { answers, late: false },
            },
            () = &mut over => return Answers { answers, late: true },
        }
    }
}

/// The size of message that the server takes, where it has said that one was larger:
/// `message size 200000000 is larger than configured max size 134217728`.
fn largest(error: &TransportError) -> Option<u64> {
    if !error.is_too_large() {
        return None;
    }
    let text = error.to_string();
    let (_, most) = text.split_once("max size ")?;
    let digits = most.split(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse().ok()
}

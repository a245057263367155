//! Sending messages.

mod scripted;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ruststream::message::{Outgoing, TransportOptions};
use ruststream::transport::{ErrorKind, Publish, PublishError, TransportError};

use crate::error::{Failure, Sign};
use crate::hub::Hub;
use crate::link::Link;
use crate::names::{check_name, slot_of};
use crate::sending::Sending;
use crate::source::Form;
use crate::stream::EntryId;
use crate::wakes::Wakes;

/// How many commands go into one pipeline: bounds what one publish keeps of others waiting.
const PIPELINE: usize = 512;

/// What Redis lets one say of a publish, beside headers, key and delay.
///
/// # Examples
///
/// ```
/// use ruststream_fred::{Form, RedisPublish};
///
/// # async fn example(publisher: ruststream::publish::Publisher) -> Result<(), ruststream::transport::PublishError> {
/// publisher.publish("jobs", &7u64).options(RedisPublish::default().form(Form::List)).await?;
/// publisher.publish("readings", &21.5f64).options(RedisPublish::default().max_length(10_000)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedisPublish {
    form: Option<Form>,
    pub(crate) id: Option<EntryId>,
    pub(crate) max_length: Option<u64>,
    once: Option<Duration>,
    transaction: bool,
}

impl RedisPublish {
    /// Sets what the destination is: [that of the broker](crate::RedisBroker::form) unless set.
    pub fn form(mut self, form: Form) -> Self {
        self.form = Some(form);
        self
    }

    /// Sets the id of the entry of a stream, in place of the time of the server. It has to be greater than those of all entries, or the
    /// publish is refused: so a message that may have been sent before is not added twice. Not kept through a delay.
    pub fn id(mut self, id: EntryId) -> Self {
        self.id = Some(id);
        self
    }

    /// Removes the oldest entries of the stream beyond about so many, also those that no one has handled yet. A retention of the
    /// [subscription](crate::RedisStream::retention) removes none of those. Not kept through a delay.
    pub fn max_length(mut self, entries: u64) -> Self {
        self.max_length = Some(entries);
        self
    }

    /// Stores a message once: where one with the same id (the header `message-id`) was published to the same name in the time `within`,
    /// with this option too, it is confirmed and not stored again. So a publish whose answer was lost can be made again.
    ///
    /// The server keeps a small key for each id for that long.
    pub fn once(mut self, within: Duration) -> Self {
        self.once = Some(within);
        self
    }

    /// Publishes it in one step of the server with all others of the same call that say so: all are stored, or none. Delayed ones can be
    /// among them. On a cluster the destinations have to lie in one slot, or the publish is refused: give them one hash tag.
    pub fn transaction(mut self) -> Self {
        self.transaction = true;
        self
    }
}

impl TransportOptions for RedisPublish {}

/// Sends messages. What many tasks publish at the same time shares round trips.
///
/// The destination of a message is the name of a stream, or what [`Form`] and [`RedisPublish`] say; none needs making. A
/// delayed message is kept in a sorted set beside it, and moved when it is due by any process that reads there.
#[derive(Clone)]
pub struct RedisPublisher {
    hub: Arc<Hub>,
    wakes: Wakes,
}

impl RedisPublisher {
    pub(crate) fn new(hub: Arc<Hub>, wakes: Wakes) -> Self {
        Self { hub, wakes }
    }

    fn check(&self, message: &Outgoing<'_>) -> Result<(), TransportError> {
        check_name(message.destination())?;
        let size = message.payload().len() + message.headers().size() + message.key().map_or(0, <[u8]>::len);
        let most = self.hub.settings().max_payload;
        if size > most {
            return Err(TransportError::new(
                ErrorKind::TooLarge,
                format!(
                    "a message to {:?} has {size} bytes and the limit is {most}: send less, or raise it with `.max_payload(..)` of \
                     the broker",
                    message.destination(),
                ),
            ));
        }
        scripted::check(message)
    }

    /// What the destination of a message is.
    fn form(&self, message: &Outgoing<'_>) -> Form {
        let options = message.options::<RedisPublish>();
        options
            .and_then(|options| options.form)
            .unwrap_or(self.hub.settings().form)
    }

    /// Publishes what takes more than one command, all together.
    async fn scripted(&self, messages: &[&Outgoing<'_>]) -> Result<(), TransportError> {
        let shaped: Vec<_> = messages.iter().map(|message| (self.form(message), *message)).collect();
        if self.hub.settings().is_cluster() {
            scripted::check_slots(&shaped)?;
        }
        Ok(scripted::publish(&self.hub, &self.wakes, &shaped).await?)
    }

    /// Publishes the messages at these positions in a transaction; none where another of the call cannot be published.
    async fn together(
        &self,
        messages: &[Outgoing<'_>],
        positions: &[usize],
        failures: &mut Vec<(usize, TransportError)>,
    ) {
        if positions.is_empty() {
            return;
        }
        let wrong = failures.iter().find(|(position, _)| is_together(&messages[*position]));
        let outcome = if let Some((_, error)) = wrong {
            Err(TransportError::new(
                error.kind(),
                format!("another message of the transaction cannot be published: {error}"),
            ))
        } else {
            let together: Vec<_> = positions.iter().map(|position| &messages[*position]).collect();
            self.scripted(&together).await
        };
        if let Err(error) = outcome {
            let of_each = |position: &usize| (*position, TransportError::new(error.kind(), error.to_string()));
            failures.extend(positions.iter().map(of_each));
        }
    }

    fn slot(&self, message: &Outgoing<'_>) -> u16 {
        if self.hub.settings().is_cluster() {
            slot_of(message.destination())
        } else {
            0
        }
    }

    async fn one(&self, message: &Outgoing<'_>) -> Result<(), Failure> {
        let link = self.hub.link(self.slot(message)).await?;
        match link.send(Sending::new(self.form(message), message)).await {
            Err(failure) => Box::pin(self.after(failure, &link, message)).await,
            sent => sent,
        }
    }

    /// What did not run is led to where its key went.
    async fn after(&self, failure: Failure, link: &Link, message: &Outgoing<'_>) -> Result<(), Failure> {
        match failure.sign {
            Sign::Elsewhere => self.hub.forget(link),
            Sign::Ask(_) => {}
            _ => return Err(failure),
        }
        let sending = || Sending::new(self.form(message), message);
        let slot = slot_of(message.destination());
        let sent = self.hub.call(slot, sending().word(), || sending().into_command().1);
        sent.await.map(drop)
    }

    /// Sends messages at these positions: each node's in order, those of several nodes at the same time.
    async fn many(&self, messages: &[Outgoing<'_>], positions: &[usize], failures: &mut Vec<(usize, TransportError)>) {
        let mut nodes: Vec<(Arc<Link>, Vec<usize>)> = Vec::new();
        for &position in positions {
            match self.hub.link(self.slot(&messages[position])).await {
                Ok(link) => match nodes.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &link)) {
                    Some((_, part)) => part.push(position),
                    None => nodes.push((link, vec![position])),
                },
                Err(failure) => failures.push((position, failure.into())),
            }
        }
        let parts = nodes.iter().map(|(link, part)| self.pipeline(link, messages, part));
        failures.extend(join_all(parts).await.into_iter().flatten());
    }

    /// Sends messages without waiting in between.
    async fn pipeline(
        &self,
        link: &Link,
        messages: &[Outgoing<'_>],
        positions: &[usize],
    ) -> Vec<(usize, TransportError)> {
        let mut failures = Vec::new();
        for part in positions.chunks(PIPELINE) {
            let sent = part.iter().map(|position| {
                let message = &messages[*position];
                link.send(Sending::new(self.form(message), message))
            });
            for (position, sent) in part.iter().zip(join_all(sent).await) {
                let Err(failure) = sent else { continue };
                if let Err(failure) = Box::pin(self.after(failure, link, &messages[*position])).await {
                    failures.push((*position, failure.into()));
                }
            }
        }
        failures
    }
}

impl Publish for RedisPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        if let [message] = messages {
            self.check(message)?;
            if scripted::is_needed(message) {
                return Ok(Box::pin(self.scripted(&[message])).await?);
            }
            return Ok(self.one(message).await.map_err(TransportError::from)?);
        }
        let mut failures = Vec::new();
        let mut at_once = Vec::with_capacity(messages.len());
        let mut together = Vec::new();
        for (position, message) in messages.iter().enumerate() {
            match self.check(message) {
                Err(error) => failures.push((position, error)),
                Ok(()) if is_together(message) => together.push(position),
                Ok(()) if scripted::is_needed(message) => {
                    if let Err(error) = Box::pin(self.scripted(&[message])).await {
                        failures.push((position, error));
                    }
                }
                Ok(()) => at_once.push(position),
            }
        }
        Box::pin(self.together(messages, &together, &mut failures)).await;
        self.many(messages, &at_once, &mut failures).await;
        match PublishError::some(failures) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for RedisPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisPublisher")
            .field("label", &self.hub.settings().label)
            .finish_non_exhaustive()
    }
}

fn is_together(message: &Outgoing<'_>) -> bool {
    message
        .options::<RedisPublish>()
        .is_some_and(|options| options.transaction)
}

/// What the destination of a message is, where names are `form` by default.
pub(crate) fn form_of(message: &Outgoing<'_>, form: Form) -> Form {
    let options = message.options::<RedisPublish>();
    options.and_then(|options| options.form).unwrap_or(form)
}

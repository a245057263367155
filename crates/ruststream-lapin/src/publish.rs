//! Publishing.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapin::types::FieldTable;
use ruststream::message::Outgoing;
use ruststream::transport::{ErrorKind, Publish, PublishError, TransportError};

use crate::delay::{self, Digits};
use crate::options::LapinPublish;
use crate::outbox::{Letter, Outbox};
use crate::properties::{self, own};
use crate::queue::check_name;
use crate::replies;
use crate::settings::Settings;
use crate::topology::check_key;

/// Publishes to RabbitMQ: each message is confirmed by the server, and many are on their way at once.
///
/// The destination of a message is the name of a queue, which it reaches through the default exchange; [`LapinPublish`] names another.
/// Messages are persistent,
/// bear the time of their publishing, and are mandatory: where there is no such queue, that is an error.
#[derive(Clone)]
pub struct LapinPublisher {
    outbox: Arc<Outbox>,
}

impl LapinPublisher {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox }
    }

    async fn letter<'a>(&self, message: &Outgoing<'a>, timestamp: u64) -> Result<Letter<'a>, TransportError> {
        let mut letter = prepare(&self.outbox.settings, message, timestamp)?;
        if !message.delay().is_zero() {
            let digits = Digits::exact(message.delay()).ok_or_else(|| delay::too_long(message.delay()))?;
            self.outbox.delayed(&mut letter, &digits, message.destination()).await?;
        }
        self.outbox.replies.address(&mut letter);
        Ok(letter)
    }
}

impl LapinPublisher {
    /// Notes what was refused, by its position in the call.
    fn refuse(
        &self,
        refused: Vec<(usize, TransportError)>,
        letters: &[Letter<'_>],
        positions: &[usize],
        failures: &mut Vec<(usize, TransportError)>,
    ) {
        for (place, error) in refused {
            self.outbox.replies.unsent(&letters[place]);
            failures.push((positions[place], error));
        }
    }
}

/// A message as it is sent, its delay aside.
pub(crate) fn prepare<'a>(
    settings: &Settings,
    message: &Outgoing<'a>,
    timestamp: u64,
) -> Result<Letter<'a>, TransportError> {
    let options = message.options::<LapinPublish>();
    let exchange = options.and_then(LapinPublish::exchange);
    let destination = message.destination();
    match exchange {
        None if replies::is_address(destination) => check_key(destination)?,
        None => check_name("the queue to publish to", destination)?,
        Some(exchange) => {
            check_name("the exchange to publish to", exchange)?;
            check_key(destination)?;
        }
    }
    let properties = match options {
        Some(options) => options.properties(timestamp)?,
        None => LapinPublish::new().properties(timestamp)?,
    };
    let properties = properties::encode(message.headers(), message.key(), properties)?;
    let mut letter = Letter::to_queue(destination, properties, message.payload());
    let mandatory = options.and_then(|options| options.mandatory);
    letter.mandatory = mandatory.unwrap_or(settings.mandatory);
    letter.together = options.is_some_and(|options| options.transaction);
    if let Some(exchange) = exchange {
        letter.exchange = Cow::Borrowed(exchange);
        if !message.delay().is_zero() {
            let text = "a delay leads to a queue: publish to the queue itself, or to the exchange without a delay";
            return Err(TransportError::new(ErrorKind::Invalid, text));
        }
    } else if replies::is_address(destination) {
        // Whoever asked may be gone; the server would say so either way.
        letter.mandatory = false;
    }
    Ok(letter)
}

impl Outbox {
    /// Sends a letter on the way through the queues of its delay.
    pub(crate) async fn delayed(
        &self,
        letter: &mut Letter<'_>,
        digits: &Digits,
        queue: &str,
    ) -> Result<(), TransportError> {
        self.delays.ensure(&self.publishing, digits, queue).await?;
        letter.exchange = Cow::Owned(digits.exchange());
        letter.routing_key = Cow::Owned(digits.routing_key(queue));
        // On arrival the routing key is that of the delay.
        if !properties::has(&letter.properties, own::ROUTING_KEY) {
            let mut table: FieldTable = letter.properties.headers().clone().unwrap_or_default();
            table.insert(own::ROUTING_KEY.into(), properties::long(queue.as_bytes()));
            letter.properties = letter.properties.clone().with_headers(table);
        }
        Ok(())
    }
}

impl Publish for LapinPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let mut letters = Vec::with_capacity(messages.len());
        let mut positions = Vec::with_capacity(messages.len());
        let mut failures = Vec::new();
        for (position, message) in messages.iter().enumerate() {
            match self.letter(message, now.as_secs()).await {
                Ok(letter) => {
                    letters.push(letter);
                    positions.push(position);
                }
                Err(error) => failures.push((position, error)),
            }
        }
        if letters.iter().any(|letter| letter.together) {
            // A call seldom has both kinds: who has no transaction in mind need not be told apart.
            let (mut together, mut alone) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
            for (letter, position) in letters.into_iter().zip(positions) {
                let (letters, positions) = if letter.together { &mut together } else { &mut alone };
                letters.push(letter);
                positions.push(position);
            }
            let refused = if failures.is_empty() {
                self.outbox.send_together(&together.0).await
            } else {
                // One of them may be among those that cannot be sent.
                let stays =
                    || TransportError::new(ErrorKind::Invalid, "another message of the transaction cannot be sent");
                (0..together.0.len()).map(|place| (place, stays())).collect()
            };
            self.refuse(refused, &together.0, &together.1, &mut failures);
            let refused = self.outbox.send(&alone.0).await;
            self.refuse(refused, &alone.0, &alone.1, &mut failures);
            failures.sort_by_key(|(position, _)| *position);
        } else {
            let refused = self.outbox.send(&letters).await;
            self.refuse(refused, &letters, &positions, &mut failures);
        }
        PublishError::some(failures).map_or(Ok(()), Err)
    }
}

impl fmt::Debug for LapinPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LapinPublisher")
            .field("server", &self.outbox.settings.label)
            .finish_non_exhaustive()
    }
}

//! Dead letters: to list, replay and purge.

use std::fmt;
use std::sync::Arc;

use lapin::Channel;
use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, QueuePurgeOptions};
use ruststream::message::{HeaderMap, header};
use ruststream::transport::{Delivery as _, ReplayAttempts, TransportError};

use crate::connection::LapinConnection;
use crate::delivery::{Message, QueueDelivery};
use crate::link::Live;
use crate::outbox::{Letter, Outbox};
use crate::properties::{self, own};

/// What the names of the headers begin with that tell a letter's history.
pub(crate) const HISTORY: &str = "dead-letter-";

/// The dead letters of one queue, which are kept in another: `<name>.dead` unless [set](crate::Queue::dead_letters) otherwise.
///
/// # Examples
///
/// ```no_run
/// # async fn example(connection: ruststream_lapin::LapinConnection) -> Result<(), ruststream::transport::TransportError> {
/// let letters = connection.dead_letters("orders.dead");
/// for letter in letters.list(20).await? {
///     println!("{:?}: {}", letter.headers.get_str("dead-letter-error"), letter.payload.len());
/// }
/// let again = letters.replay("orders").await?;
/// # let _ = again;
/// # Ok(()) }
/// ```
pub struct DeadLetters<'a> {
    connection: &'a LapinConnection,
    queue: String,
}

/// A dead letter.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadMessage {
    /// The bytes of the message, as published.
    pub payload: Vec<u8>,
    /// Its headers, and those that say why it is here: the names are in [`header`](ruststream::message::header).
    pub headers: HeaderMap,
}

impl<'a> DeadLetters<'a> {
    pub(crate) fn new(connection: &'a LapinConnection, queue: String) -> Self {
        Self { connection, queue }
    }

    /// The first of them, oldest first. They stay where they are, and are marked as redelivered.
    ///
    /// # Errors
    ///
    /// Where there is no such queue, or the server does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves them where they are.
    pub async fn list(&self, most: usize) -> Result<Vec<DeadMessage>, TransportError> {
        let reader = self.reader().await?;
        let mut listed = Vec::new();
        while listed.len() < most
            && let Some(letter) = reader.next().await?
        {
            let delivery = QueueDelivery {
                message: Box::new(Message::new(0, letter.delivery)),
            };
            listed.push(DeadMessage {
                payload: delivery.payload().to_vec(),
                headers: delivery.headers().clone(),
            });
        }
        // What is not acked goes back when the channel ends.
        reader.end().await?;
        Ok(listed)
    }

    /// Puts all that are there now back into a queue, as if for the first time; answers how many. Each is confirmed there before it is
    /// let go here.
    ///
    /// # Errors
    ///
    /// Where one of the queues is missing, or the server does not answer; some may have been replayed by then.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may have replayed some of them; one of those may be in both queues.
    pub async fn replay(&self, into: &str) -> Result<u64, TransportError> {
        let reader = self.reader().await?;
        let mut count = 0;
        let mut left = None;
        while left != Some(0)
            && let Some(letter) = reader.next().await?
        {
            // One that dies again meanwhile is not met twice.
            let rest = left.map_or(letter.message_count, |left: u32| left - 1);
            let message = Message::new(0, letter.delivery);
            if let Err(error) = reader.replay(&message, into, ReplayAttempts::Reset).await {
                reader.end().await?;
                return Err(error);
            }
            count += 1;
            left = Some(rest);
        }
        reader.end().await?;
        Ok(count)
    }

    /// Throws all of them away; answers how many.
    ///
    /// # Errors
    ///
    /// Where there is no such queue, or the server does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may have thrown them away.
    pub async fn purge(&self) -> Result<u64, TransportError> {
        let reader = self.reader().await?;
        let purging = reader
            .channel
            .queue_purge(self.queue.as_str().into(), QueuePurgeOptions::default());
        let count = reader.call(purging).await?;
        reader.end().await?;
        Ok(count.into())
    }

    async fn reader(&self) -> Result<Reader, TransportError> {
        Reader::open(self.connection.outbox().clone(), self.queue.clone()).await
    }
}

/// A channel to read dead letters on.
pub(crate) struct Reader {
    outbox: Arc<Outbox>,
    queue: String,
    live: Arc<Live>,
    channel: Channel,
}

impl Reader {
    pub(crate) async fn open(outbox: Arc<Outbox>, queue: String) -> Result<Self, TransportError> {
        let live = outbox.consuming.live().await?;
        let channel = outbox.consuming.channel(&live).await?;
        Ok(Self {
            outbox,
            queue,
            live,
            channel,
        })
    }

    async fn call<T>(&self, call: impl Future<Output = lapin::Result<T>>) -> Result<T, TransportError> {
        let what = format!("dead letters in queue `{}`", self.queue);
        self.outbox.consuming.call(&self.live, &what, call).await
    }

    pub(crate) async fn next(&self) -> Result<Option<BasicGetMessage>, TransportError> {
        let queue = self.queue.as_str().into();
        self.call(self.channel.basic_get(queue, BasicGetOptions::default()))
            .await
    }

    /// Confirmed there before it is let go here.
    pub(crate) async fn replay(
        &self,
        message: &Message,
        into: &str,
        attempts: ReplayAttempts,
    ) -> Result<(), TransportError> {
        let mut table = message.published_headers();
        for name in message.headers().iter().map(|(name, _)| name) {
            if name.starts_with(HISTORY) {
                table = without(&table, name);
            }
        }
        if attempts == ReplayAttempts::Kept
            && let Some(made) = told::<i64>(message.headers(), header::DEAD_ATTEMPTS)
        {
            table.insert(own::ATTEMPTS.into(), made.into());
        }
        let properties = properties::with_table(&message.fields.properties, table);
        let again = [Letter::to_queue(into, properties, &message.payload)];
        if let Some((_, error)) = self.outbox.send(&again).await.pop() {
            return Err(error);
        }
        self.ack(message.fields.tag()).await
    }

    pub(crate) async fn ack(&self, tag: u64) -> Result<(), TransportError> {
        self.call(self.channel.basic_ack(tag, BasicAckOptions::default())).await
    }

    pub(crate) async fn end(&self) -> Result<(), TransportError> {
        if !self.channel.status().connected() {
            return Ok(());
        }
        self.call(self.channel.close(200, "done".into())).await
    }
}

/// What a header of the history says.
pub(crate) fn told<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<T> {
    headers.get_str(name)?.parse().ok()
}

fn without(table: &lapin::types::FieldTable, name: &str) -> lapin::types::FieldTable {
    let mut rest = lapin::types::FieldTable::default();
    for (known, value) in table.inner() {
        if known.as_str() != name {
            rest.insert(known.clone(), value.clone());
        }
    }
    rest
}

impl fmt::Debug for DeadLetters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

//! Where a reader of a stream stands, kept by the server: as the one message of a queue.
//!
//! Whoever reads is the one active consumer of that queue, so that no two processes read as one. It holds the message unacked; a
//! new place is a new message, confirmed before the old one is acked.

use std::str;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Consumer};
use ruststream::transport::{ErrorKind, TransportError};
use tokio::time::{sleep, timeout};

use crate::error;
use crate::link::Live;
use crate::outbox::{Letter, Outbox};
use crate::queue::text;

const A_MOMENT: Duration = Duration::from_millis(50);
/// How many moments the server may take to see that a reader has ended.
const FORGETS_WITHIN: u32 = 10;

/// The right to read a stream under a name, and the place of that reader.
pub(crate) struct Position {
    queue: String,
    live: Arc<Live>,
    channel: Channel,
    consumer: Consumer,
    kept: Option<u64>,
    ended: bool,
}

impl Position {
    /// Takes that right; its place is in [`kept`](Self::kept).
    ///
    /// # Errors
    ///
    /// Busy where another process has it.
    pub(crate) async fn take(
        outbox: &Outbox,
        live: &Arc<Live>,
        stream: &str,
        reader: &str,
    ) -> Result<Self, TransportError> {
        let link = &outbox.consuming;
        let channel = link.channel(live).await?;
        let queue = format!("{stream}.position.{reader}");
        let what = format!("queue `{queue}` for the position in a stream");
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), text("quorum"));
        // A quorum queue has no exclusive consumers; of several, this makes one the reader.
        arguments.insert("x-single-active-consumer".into(), true.into());
        let declare =
            || channel.queue_declare(queue.as_str().into(), QueueDeclareOptions::durable(), arguments.clone());
        // The server forgets a reader a moment after its channel was closed, and gives back at once what it held.
        let mut is_read = link.call(live, &what, declare()).await?.consumer_count() > 0;
        for _ in 0..FORGETS_WITHIN {
            if is_read {
                sleep(A_MOMENT).await;
                is_read = link.call(live, &what, declare()).await?.consumer_count() > 0;
            }
        }
        if is_read {
            let text = format!(
                "stream `{stream}` is read as `{reader}` by another process already; this one takes over when that ends. One that \
                 is to read for itself needs a name of its own: .reader(\"...\")"
            );
            return Err(TransportError::new(ErrorKind::Busy, text));
        }
        let options = BasicConsumeOptions::default();
        let consuming = channel.basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default());
        let consumer = link.call(live, &what, consuming).await?;
        let mut position = Self {
            queue,
            live: live.clone(),
            channel,
            consumer,
            kept: None,
            ended: false,
        };
        // What was kept before comes before this; written anew, it has never been delivered, and no delivery limit reaches it.
        position.write(outbox, None).await?;
        if let Some(place) = position.kept {
            position.write(outbox, Some(place)).await?;
        }
        Ok(position)
    }

    /// The place that is kept: the offset of the first message that is not settled.
    pub(crate) fn kept(&self) -> Option<u64> {
        self.kept
    }

    /// Whether another may have it by now.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Keeps a place, unless one behind it is kept already.
    pub(crate) async fn keep(&mut self, outbox: &Outbox, place: u64) -> Result<(), TransportError> {
        if self.kept.is_none_or(|kept| kept < place) {
            self.write(outbox, Some(place)).await?;
        }
        Ok(())
    }

    pub(crate) async fn close(&self, outbox: &Outbox) -> Result<(), TransportError> {
        let closing = self.channel.close(200, "done".into());
        outbox.consuming.call(&self.live, "closing a channel", closing).await
    }

    /// Writes a message and waits until it comes back, behind all that were written before it. Those are acked if it is a place.
    async fn write(&mut self, outbox: &Outbox, place: Option<u64>) -> Result<(), TransportError> {
        let number = fastrand::u64(..);
        let text = place.map_or_else(|| format!("- {number}"), |place| format!("{place} {number}"));
        let properties = BasicProperties::default().with_delivery_mode(2);
        let letter = [Letter::to_queue(self.queue.as_str(), properties, text.as_bytes())];
        if let Some((_, error)) = outbox.send(&letter).await.pop() {
            return Err(error);
        }
        let tag = self.read_up_to(outbox, text.as_bytes()).await;
        self.ended |= tag.is_err();
        let tag = tag?;
        if place.is_some() && tag > 1 {
            self.ack(tag - 1).await?;
        }
        Ok(())
    }

    /// Waits for a message that was written; answers its tag.
    async fn read_up_to(&mut self, outbox: &Outbox, message: &[u8]) -> Result<u64, TransportError> {
        let deadline = outbox.settings.call_timeout;
        let what = || format!("reading queue `{}`", self.queue);
        loop {
            let next = timeout(deadline, self.consumer.next()).await;
            let delivery = match next.map_err(|_| error::late(&what(), deadline))? {
                Some(Ok(delivery)) => delivery,
                Some(Err(error)) => return Err(error::from_lapin(error, &what())),
                None => {
                    let text = format!("{}: the server ended it", what());
                    return Err(TransportError::new(ErrorKind::Unavailable, text));
                }
            };
            // Where two were written by readers that followed each other, the later place counts.
            self.kept = self.kept.max(read(&delivery.data));
            if delivery.data == message {
                return Ok(delivery.delivery_tag);
            }
        }
    }

    async fn ack(&self, tag: u64) -> Result<(), TransportError> {
        let acking = self.channel.basic_ack(tag, BasicAckOptions { multiple: true });
        acking
            .await
            .map_err(|error| error::from_lapin(error, &format!("queue `{}`", self.queue)))
    }
}

/// The place in a message, as far as it is one.
fn read(message: &[u8]) -> Option<u64> {
    let (place, _) = str::from_utf8(message).ok()?.split_once(' ')?;
    place.parse().ok()
}

//! The dead letters of one queue, for the command `dead-letters` of a service.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use ruststream::message::header;
use ruststream::transport::{DeadLetters, DeadMessage, ReplayAttempts, TransportError};

use crate::dead_letters::{HISTORY, Reader, told};
use crate::delivery::Message;
use crate::outbox::Outbox;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TransportError>> + Send + 'a>>;

/// What it has shown stays unacked until it is closed.
pub(crate) struct Walk {
    reader: Reader,
    /// Where they came from.
    into: String,
    shown: Vec<(String, Message)>,
    /// How many there are still to show; known with the first. One that dies again meanwhile is not met twice.
    left: Option<u32>,
}

impl Walk {
    pub(crate) async fn open(outbox: Arc<Outbox>, dead: &str, into: &str) -> Result<Self, TransportError> {
        Ok(Self {
            reader: Reader::open(outbox, dead.to_owned()).await?,
            into: into.to_owned(),
            shown: Vec::new(),
            left: None,
        })
    }

    /// The next letter; none at the end, and where there is no queue, which is made for the first letter.
    async fn letter(&mut self) -> Result<Option<Message>, TransportError> {
        if self.left == Some(0) {
            return Ok(None);
        }
        let letter = match self.reader.next().await {
            Err(error) if self.left.is_none() && error.is_unroutable() => None,
            letter => letter?,
        };
        let Some(letter) = letter else {
            self.left = Some(0);
            return Ok(None);
        };
        self.left = Some(self.left.map_or(letter.message_count, |left| left - 1));
        Ok(Some(Message::new(0, letter.delivery)))
    }

    /// Takes the letters of these ids out of those that were shown.
    fn take(&mut self, ids: &[String]) -> Vec<(String, Message)> {
        self.shown.extract_if(.., |(id, _)| ids.contains(id)).collect()
    }
}

impl DeadLetters for Walk {
    fn next(&mut self, most: usize) -> BoxFuture<'_, Vec<DeadMessage>> {
        Box::pin(async move {
            // Those of the page before stay unacked, so that the server does not hand them out again; only their bytes are let go.
            self.shown.clear();
            let mut page = Vec::new();
            while page.len() < most
                && let Some(message) = self.letter().await?
            {
                let letter = shown(&message);
                self.shown.push((letter.id.clone(), message));
                page.push(letter);
            }
            Ok(page)
        })
    }

    fn replay<'a>(&'a mut self, ids: &'a [String], attempts: ReplayAttempts) -> BoxFuture<'a, u64> {
        Box::pin(async move {
            let mut count = 0;
            for (_, message) in self.take(ids) {
                self.reader.replay(&message, &self.into, attempts).await?;
                count += 1;
            }
            Ok(count)
        })
    }

    fn purge<'a>(&'a mut self, ids: &'a [String]) -> BoxFuture<'a, u64> {
        Box::pin(async move {
            let mut count = 0;
            for (_, message) in self.take(ids) {
                self.reader.ack(message.fields.tag()).await?;
                count += 1;
            }
            Ok(count)
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.reader.end().await })
    }
}

/// A letter as people see it. Its id is the one that it was published with; in its absence, its place.
fn shown(message: &Message) -> DeadMessage {
    let headers = message.headers();
    let text = |name: &str| headers.get_str(name).unwrap_or_default().to_owned();
    let id = match headers.get_str(header::MESSAGE_ID) {
        Some(id) if !id.is_empty() => id.to_owned(),
        _ => message.fields.tag().to_string(),
    };
    let mut letter = DeadMessage::new(id, message.payload.clone());
    letter.reason = text(header::DEAD_REASON);
    letter.error = text(header::DEAD_ERROR);
    letter.source = text(header::DEAD_SOURCE);
    letter.attempts = told(headers, header::DEAD_ATTEMPTS).unwrap_or_default();
    let since = told(headers, header::DEAD_AT).map(Duration::from_millis);
    letter.dead_at = since
        .and_then(|since| UNIX_EPOCH.checked_add(since))
        .unwrap_or(UNIX_EPOCH);
    // One that the server itself gave up.
    if letter.reason.is_empty()
        && let Some(death) = message.fields.deaths().first()
    {
        letter.reason.clone_from(&death.reason);
        letter.source.clone_from(&death.queue);
        letter.dead_at = death.time.unwrap_or(UNIX_EPOCH);
    }
    letter.key = headers.get(header::KEY).map(Bytes::copy_from_slice);
    letter.headers.clone_from(headers);
    let history: Vec<String> = headers
        .iter()
        .map(|(name, _)| name.to_owned())
        .filter(|name| name.starts_with(HISTORY))
        .collect();
    for name in history {
        letter.headers.remove(&name);
    }
    letter
}

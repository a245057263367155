//! Dead letters: to list, show, replay and purge.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fred::interfaces::Resp3Frame as Frame;
use fred::types::Value;
use ruststream::message::{HeaderMap, Outgoing, header};
use ruststream::transport::{ErrorKind, TransportError};

use crate::error::Failure;
use crate::hub::Hub;
use crate::names::{beside, check_name, dead_of, slot_of};
use crate::script::Script;
use crate::stream::EntryId;
use crate::{envelope, message, reply};

static REPLAY_ENTRIES: Script = Script::new(include_str!("lua/replay_entries.lua"));
static REPLAY_ITEM: Script = Script::new(include_str!("lua/replay_item.lua"));
static PURGE: Script = Script::new(include_str!("lua/purge.lua"));

/// How many letters one script moves, so that the server serves others in between.
const BATCH: i64 = 100;

/// The dead letters of a connection's streams and lists.
///
/// Those of `orders` lie in `orders.dead` (`{orders}.dead` on a cluster): in a stream where `orders` is one, else in a list.
///
/// # Examples
///
/// ```
/// # use ruststream::transport::{Broker, TransportError};
/// # use ruststream_fred::RedisBroker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let connection = RedisBroker::standalone(servers::shared(servers::Kind::Redis)?).connect().await?;
/// for letter in connection.dead_letters().list("orders", 20).await? {
///     println!("{}: {} after {} attempts: {}", letter.id, letter.reason, letter.attempts, letter.error);
/// }
/// let again = connection.dead_letters().replay_all("orders").await?;
/// assert_eq!(again, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct DeadLetters<'a> {
    hub: &'a Hub,
}

/// A dead letter: the message as it was published, and its history.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadMessage {
    /// The id of its entry; in a list, its place, the oldest being 0.
    pub id: String,
    /// Why it was given up: a word of [`DeadReason`](ruststream::transport::DeadReason).
    pub reason: String,
    /// The text of the last error.
    pub error: String,
    /// How often it was handed to its handler.
    pub attempts: u32,
    /// The name of the subscription that gave it up.
    pub source: String,
    /// When it was given up.
    pub dead_at: SystemTime,
    /// Its headers, without those that tell its history.
    pub headers: HeaderMap,
    /// Its payload, byte for byte.
    pub payload: Bytes,
}

/// What holds dead letters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Nothing,
    Stream,
    List,
}

impl<'a> DeadLetters<'a> {
    pub(crate) fn new(hub: &'a Hub) -> Self {
        Self { hub }
    }

    /// The oldest dead letters of a stream, a list or a channel, at most `limit`.
    ///
    /// # Errors
    ///
    /// Where the server does not answer, or `<name>.dead` is something else.
    pub async fn list(&self, name: &str, limit: usize) -> Result<Vec<DeadMessage>, TransportError> {
        let place = self.place(name)?;
        match self.holder(&place).await? {
            Holder::Nothing => Ok(Vec::new()),
            Holder::Stream => self.entries(&place, "-", "+", limit).await,
            Holder::List => {
                let values = self.values(&place, 0, limit).await?.into_iter().enumerate();
                Ok(values
                    .map(|(number, value)| DeadMessage::of_value(number.to_string(), &value))
                    .collect())
            }
        }
    }

    /// The dead letter of this entry of the stream `<name>.dead`.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub async fn show(&self, name: &str, id: EntryId) -> Result<Option<DeadMessage>, TransportError> {
        let place = self.place(name)?;
        if self.holder(&place).await? != Holder::Stream {
            return Ok(None);
        }
        let id = id.to_string();
        Ok(self.entries(&place, &id, &id, 1).await?.pop())
    }

    /// Moves one entry of the stream `<name>.dead` back into its stream, its attempts counted from the start. False where there is no
    /// such dead letter.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub async fn replay(&self, name: &str, id: EntryId) -> Result<bool, TransportError> {
        let place = self.place(name)?;
        if self.holder(&place).await? != Holder::Stream {
            return Ok(false);
        }
        let id = id.to_string();
        Ok(!self.move_entries(name, &place, &id, &id).await?.is_empty())
    }

    /// Puts every dead letter that is there now back to be delivered, oldest first, and answers how many there were. Those of a stream
    /// become new entries of it; those of a list or a channel wait where retries do, for subscriptions of this name alone.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list); some may be moved by then.
    pub async fn replay_all(&self, name: &str) -> Result<u64, TransportError> {
        let place = self.place(name)?;
        match self.holder(&place).await? {
            Holder::Nothing => Ok(0),
            Holder::Stream => self.replay_entries(name, &place).await,
            Holder::List => self.replay_items(name, &place).await,
        }
    }

    /// Deletes one entry of the stream `<name>.dead`. False where there is no such dead letter.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub async fn purge(&self, name: &str, id: EntryId) -> Result<bool, TransportError> {
        let place = self.place(name)?;
        if self.holder(&place).await? != Holder::Stream {
            return Ok(false);
        }
        self.delete(&place, &id.to_string()).await
    }

    pub(crate) async fn delete(&self, place: &str, id: &str) -> Result<bool, TransportError> {
        let arguments = || vec![place.into(), id.into()];
        let deleted = self.hub().call(slot_of(place), "XDEL", arguments).await?;
        Ok(reply::number(&deleted, "XDEL")? > 0)
    }

    pub(crate) async fn length(&self, place: &str) -> Result<usize, TransportError> {
        let length = self.hub().call(slot_of(place), "LLEN", || vec![place.into()]).await?;
        Ok(usize::try_from(reply::number(&length, "LLEN")?).unwrap_or_default())
    }

    /// Takes one value out of a list.
    pub(crate) async fn remove(&self, place: &str, value: &Bytes) -> Result<u64, TransportError> {
        let arguments = || vec![place.into(), Value::from(-1_i64), Value::Bytes(value.clone())];
        let removed = self.hub().call(slot_of(place), "LREM", arguments).await?;
        Ok(reply::number(&removed, "LREM")?.max(0).cast_unsigned())
    }

    /// Deletes every dead letter, and answers how many there were.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub async fn purge_all(&self, name: &str) -> Result<u64, TransportError> {
        let place = self.place(name)?;
        let word = match self.holder(&place).await? {
            Holder::Nothing => return Ok(0),
            Holder::Stream => "stream",
            Holder::List => "list",
        };
        let purged = PURGE
            .run(self.hub(), slot_of(&place), &[&place], |values| {
                values.push(Value::from_static_str(word));
            })
            .await?;
        Ok(reply::number(&purged, "the script that purges")?.max(0).cast_unsigned())
    }

    fn hub(self) -> &'a Hub {
        self.hub
    }

    pub(crate) fn place(self, name: &str) -> Result<String, TransportError> {
        check_name(name)?;
        Ok(dead_of(name, self.hub().settings().is_cluster()))
    }

    pub(crate) async fn holder(&self, place: &str) -> Result<Holder, TransportError> {
        let answer = self.hub().call(slot_of(place), "TYPE", || vec![place.into()]).await?;
        match reply::text(answer, "TYPE")?.as_str() {
            "none" => Ok(Holder::Nothing),
            "stream" => Ok(Holder::Stream),
            "list" => Ok(Holder::List),
            other => Err(TransportError::new(
                ErrorKind::Incompatible,
                format!("{place:?} holds a {other}, and dead letters lie in a stream or a list"),
            )),
        }
    }

    pub(crate) async fn entries(
        &self,
        place: &str,
        first: &str,
        last: &str,
        limit: usize,
    ) -> Result<Vec<DeadMessage>, TransportError> {
        let answer = self
            .hub()
            .call(slot_of(place), "XRANGE", || {
                vec![
                    place.into(),
                    first.into(),
                    last.into(),
                    "COUNT".into(),
                    reply::count(limit),
                ]
            })
            .await?;
        let mut letters = Vec::new();
        for entry in reply::parts(answer, "XRANGE")? {
            let [id, fields] = reply::exactly(entry, "XRANGE")?;
            let message::Fields { payload, headers } = message::read(fields)?;
            letters.push(DeadMessage::new(reply::text(id, "XRANGE")?, headers, payload));
        }
        Ok(letters)
    }

    /// The values of a list, the oldest first, behind so many.
    pub(crate) async fn values(&self, place: &str, behind: usize, limit: usize) -> Result<Vec<Bytes>, Failure> {
        let place_of = |number: usize| i64::try_from(number).map_or(i64::MIN, |number| -number);
        let (first, last) = (place_of(behind.saturating_add(limit)), place_of(behind + 1));
        let arguments = || vec![place.into(), first.into(), last.into()];
        let answer = self.hub().call(slot_of(place), "LRANGE", arguments).await?;
        let values = reply::parts(answer, "LRANGE")?.into_iter().rev();
        values.map(|value| reply::bytes(value, "LRANGE")).collect()
    }

    pub(crate) async fn move_entries(
        &self,
        name: &str,
        place: &str,
        first: &str,
        last: &str,
    ) -> Result<Vec<Frame>, Failure> {
        let moved = REPLAY_ENTRIES
            .run(self.hub(), slot_of(place), &[place, name], |values| {
                values.push(first.into());
                values.push(last.into());
                values.push(BATCH.into());
            })
            .await?;
        reply::parts(moved, "the script that replays")
    }

    /// Up to the last that is there now, so that a letter which dies again meanwhile is not met twice.
    async fn replay_entries(&self, name: &str, place: &str) -> Result<u64, TransportError> {
        let Some(last) = self.newest(place).await? else {
            return Ok(0);
        };
        let mut total = 0;
        loop {
            let moved = self.move_entries(name, place, "-", &last).await?.len();
            total += moved as u64;
            if moved == 0 {
                return Ok(total);
            }
        }
    }

    /// The id of the newest entry of a stream.
    pub(crate) async fn newest(&self, place: &str) -> Result<Option<String>, TransportError> {
        let answer = self
            .hub()
            .call(slot_of(place), "XREVRANGE", || {
                vec![place.into(), "+".into(), "-".into(), "COUNT".into(), 1.into()]
            })
            .await?;
        let Some(newest) = reply::parts(answer, "XREVRANGE")?.pop() else {
            return Ok(None);
        };
        let [last, _] = reply::exactly(newest, "XREVRANGE")?;
        Ok(Some(reply::text(last, "XREVRANGE")?))
    }

    async fn replay_items(&self, name: &str, place: &str) -> Result<u64, TransportError> {
        let mut total = 0;
        for value in self.values(place, 0, usize::MAX >> 1).await? {
            total += self.replay_item(name, place, &value, 0).await?;
        }
        Ok(total)
    }

    /// Puts it where retries wait, with so many attempts made.
    pub(crate) async fn replay_item(
        &self,
        name: &str,
        place: &str,
        value: &Bytes,
        attempts: u32,
    ) -> Result<u64, TransportError> {
        let (payload, headers) = envelope::read(value);
        let headers = without_history(headers);
        let again = envelope::write(&Outgoing::new(name, &payload).with_headers(&headers), b"");
        let (due, numbers) = (beside(name, "due"), beside(name, "numbers"));
        let moved = REPLAY_ITEM
            .run(self.hub(), slot_of(place), &[place, &due, &numbers], |values| {
                values.push(Value::Bytes(value.clone()));
                values.push(Value::Bytes(again.clone()));
                values.push(i64::from(attempts).into());
                values.push(beside(name, "bell").into());
            })
            .await?;
        Ok(reply::number(&moved, "the script that replays")?.max(0).cast_unsigned())
    }
}

impl DeadMessage {
    fn new(id: String, headers: HeaderMap, payload: Bytes) -> Self {
        let text = |name: &str| headers.get_str(name).unwrap_or_default().to_owned();
        let dead_at = text(header::DEAD_AT).parse().unwrap_or_default();
        Self {
            id,
            reason: text(header::DEAD_REASON),
            error: text(header::DEAD_ERROR),
            attempts: text(header::DEAD_ATTEMPTS).parse().unwrap_or_default(),
            source: text(header::DEAD_SOURCE),
            dead_at: UNIX_EPOCH
                .checked_add(Duration::from_millis(dead_at))
                .unwrap_or(UNIX_EPOCH),
            headers: without_history(headers),
            payload,
        }
    }

    pub(crate) fn of_value(id: String, value: &Bytes) -> Self {
        let (payload, headers) = envelope::read(value);
        Self::new(id, headers, payload)
    }
}

fn without_history(mut headers: HeaderMap) -> HeaderMap {
    for name in [
        header::DEAD_REASON,
        header::DEAD_ERROR,
        header::DEAD_ATTEMPTS,
        header::DEAD_SOURCE,
        header::DEAD_AT,
    ] {
        headers.remove(name);
    }
    headers
}

impl fmt::Debug for DeadLetters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters").finish_non_exhaustive()
    }
}

//! What a test is told: calls, messages and dead letters.

use std::time::Duration;

use bytes::Bytes;

use crate::codec::{Codec, compression};
use crate::handler::{self, FailureKind, HandlerOutcome};
use crate::message::{HeaderMap, Incoming, OptionSet, TransportOptions, header};
use crate::transport::DeadReason;

/// One call of a handler. `T` is its message, or `Bytes` where they were asked for raw.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Call<T = Bytes> {
    /// The name of the handler function.
    pub handler: &'static str,
    /// The name of the subscription.
    pub subscription: String,
    /// What it was called with.
    pub message: T,
    /// The headers of the message.
    pub headers: HeaderMap,
    /// Its key.
    pub key: Option<Bytes>,
    /// Which attempt this was: 1 on the first.
    pub attempt: u32,
    /// How it ended.
    pub outcome: CallOutcome,
    /// The wait until the next attempt, where there is to be one.
    pub retry_after: Option<Duration>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// It has not ended, or was dropped when the app was.
    Running,
    /// The handler decided; `Ok(())` is an ack.
    Said(HandlerOutcome),
    /// It answered, to this name.
    Replied(String),
    /// It answered with several messages, to these names.
    RepliedTo(Vec<String>),
    /// It failed: by an error, a panic, a time-out, or because its reply was not confirmed.
    Failed {
        /// The kind of failure.
        kind: FailureKind,
        /// The text of the error or the panic.
        error: String,
    },
    /// Its message could not be decoded, so the handler was not called.
    Undecodable(String),
    /// The app stopped in the middle of it, and its message was given back.
    Stopped,
}

impl<T> Call<T> {
    /// True if it handled its message: it acked or replied.
    pub fn is_ok(&self) -> bool {
        matches!(
            self.outcome,
            CallOutcome::Said(HandlerOutcome::Ack) | CallOutcome::Replied(_) | CallOutcome::RepliedTo(_)
        )
    }

    /// The text of what went wrong, where something did: an error, a panic, a time-out, a message that could not be decoded.
    pub fn error(&self) -> Option<&str> {
        match &self.outcome {
            CallOutcome::Failed { error, .. } | CallOutcome::Undecodable(error) => Some(error),
            _ => None,
        }
    }

    /// The same call with another message.
    pub(super) fn map<N>(self, message: impl FnOnce(T) -> N) -> Call<N> {
        Call {
            handler: self.handler,
            subscription: self.subscription,
            message: message(self.message),
            headers: self.headers,
            key: self.key,
            attempt: self.attempt,
            outcome: self.outcome,
            retry_after: self.retry_after,
        }
    }
}

/// A message that the app published.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The name it was published to.
    pub destination: String,
    /// Its bytes.
    pub payload: Bytes,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its key.
    pub key: Option<Bytes>,
    /// How long the broker was to keep it back.
    pub delay: Duration,
    pub(super) options: OptionSet,
}

impl Message {
    /// Its options for the transport whose type this is; see [`TransportOptions`].
    pub fn options<O: TransportOptions>(&self) -> Option<&O> {
        self.options.get()
    }

    /// Reads the payload, as the content type says, or as JSON where it says nothing.
    ///
    /// # Panics
    ///
    /// Where the payload is no `T`.
    #[track_caller]
    pub fn decode<T: for<'a> handler::Message<'a>>(&self) -> T {
        let place = format!("the message to `{}`", self.destination);
        decode_or_fail(&Codec::default(), &self.headers, &self.payload, &place)
    }
}

/// A message that was given up, as it was published, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its bytes.
    pub payload: Bytes,
    /// Its headers, as published.
    pub headers: HeaderMap,
    /// Its key.
    pub key: Option<Bytes>,
    /// The kind of end.
    pub reason: DeadReason,
    /// The text of the last error.
    pub error: String,
    /// How often it was handed to its handler.
    pub attempts: u32,
    /// The name it was published to as a dead letter; `None` where it is kept by the broker.
    pub destination: Option<String>,
}

impl DeadLetter {
    /// Reads the payload, as the content type says, or as JSON where it says nothing.
    ///
    /// # Panics
    ///
    /// Where the payload is no `T`.
    #[track_caller]
    pub fn decode<T: for<'a> handler::Message<'a>>(&self) -> T {
        decode_or_fail(&Codec::default(), &self.headers, &self.payload, "the dead letter")
    }

    /// What a published copy says of itself; `None` where it is no dead letter of this subscription.
    pub(super) fn of_copy(copy: &Message, subscription: &str) -> Option<Self> {
        if copy.headers.get_str(header::DEAD_SOURCE)? != subscription {
            return None;
        }
        let text = |name| copy.headers.get_str(name).unwrap_or_default().to_owned();
        let reason = [
            DeadReason::AttemptsExhausted,
            DeadReason::Undecodable,
            DeadReason::Rejected,
        ]
        .into_iter()
        .find(|reason| reason.as_str() == text(header::DEAD_REASON))?;
        let mut headers = copy.headers.clone();
        for name in [
            header::DEAD_REASON,
            header::DEAD_ERROR,
            header::DEAD_ATTEMPTS,
            header::DEAD_SOURCE,
            header::DEAD_PUBLISHED_AT,
            header::DEAD_AT,
        ] {
            headers.remove(name);
        }
        Some(Self {
            payload: copy.payload.clone(),
            headers,
            key: copy.key.clone(),
            reason,
            error: text(header::DEAD_ERROR),
            attempts: text(header::DEAD_ATTEMPTS).parse().unwrap_or_default(),
            destination: Some(copy.destination.clone()),
        })
    }
}

/// Reads a message as its handler would, where `codec` is that of the subscription.
#[track_caller]
pub(super) fn decode_or_fail<T>(codec: &Codec, headers: &HeaderMap, payload: &[u8], place: &str) -> T
where
    T: for<'a> handler::Message<'a>,
{
    let read = compression::plain(headers, payload).and_then(|plain| T::read(Incoming::new(&plain, headers), codec));
    read.unwrap_or_else(|error| {
        panic!(
            "{place} is no `{}`: {error}; it is {}",
            std::any::type_name::<T>(),
            super::transcript::preview(payload)
        )
    })
}

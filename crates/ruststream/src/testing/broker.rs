//! One broker of an app under test.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::journal::{By, Confirmation, Journal, Seat, What};
use super::record::{Call, CallOutcome, DeadLetter, Message, decode_or_fail};
use super::transport::StandIn;
use crate::codec::{Codec, Encode};
use crate::handler::{self, FailureKind};
use crate::memory::MemoryBroker;
use crate::publish::{Destination, PublishLayers, Publisher, Publishing};

/// One broker of an app under test: what the test publishes on it, and what happened on it.
///
/// A [`TestApp`](super::TestApp) is its first broker; [`TestApp::broker`](super::TestApp::broker) selects another.
pub struct TestBroker {
    pub(super) stand_in: StandIn,
    pub(super) seats: Vec<Arc<Seat>>,
    publisher: Publisher,
}

impl TestBroker {
    pub(super) fn new(stand_in: StandIn, seats: Vec<Arc<Seat>>, codec: Codec) -> Self {
        Self {
            publisher: Publisher::new(stand_in.publisher_of_the_test(), codec, PublishLayers::default()),
            stand_in,
            seats,
        }
    }

    pub(super) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// What the broker that it stands in for is called.
    pub fn label(&self) -> &str {
        &self.stand_in.label
    }

    /// Publishes `message` to `destination` once awaited; headers, key, delay and options are set in between.
    ///
    /// # Errors
    ///
    /// As [`Publisher::publish`].
    ///
    /// # Cancel safety
    ///
    /// As [`Publisher::publish`].
    pub fn publish<T: Encode + ?Sized>(&self, destination: impl Destination, message: &T) -> Publishing {
        self.publisher.publish(destination, message)
    }

    /// Publishes bytes as they are, without a content type.
    ///
    /// # Errors
    ///
    /// As [`Publisher::publish`].
    pub fn publish_bytes(&self, destination: impl Destination, payload: impl Into<Vec<u8>>) -> Publishing {
        self.publisher.publish_bytes(destination, payload)
    }

    /// The calls of a subscription, in the order of their beginning; `name` is what it reads, or the name of its handler.
    ///
    /// Calls whose message could not be decoded did not reach the handler and are not among them; [`raw_calls`](Self::raw_calls)
    /// has them too.
    ///
    /// # Panics
    ///
    /// Where the app has no such subscription, or a message is no `T`.
    #[track_caller]
    pub fn calls<T: for<'a> handler::Message<'a>>(&self, name: &str) -> Vec<Call<T>> {
        let mut decoded = Vec::new();
        for call in self.raw_calls(name) {
            if !matches!(call.outcome, CallOutcome::Undecodable(_)) {
                let place = format!("the message of a call of `{}`", call.handler);
                let message = decode_or_fail(self.publisher.codec(), &call.headers, &call.message, &place);
                decoded.push(call.map(|_| message));
            }
        }
        decoded
    }

    /// As [`calls`](Self::calls), with the messages as they came.
    ///
    /// # Panics
    ///
    /// Where the app has no such subscription.
    #[track_caller]
    pub fn raw_calls(&self, name: &str) -> Vec<Call<Bytes>> {
        let seats = self.seats(name);
        let mut calls = self.all_calls();
        calls.retain(|call| {
            seats
                .iter()
                .any(|seat| *seat.name == *call.subscription && seat.handler == call.handler)
        });
        calls
    }

    /// The calls that panicked, of all subscriptions.
    pub fn panics(&self) -> Vec<Call<Bytes>> {
        let mut calls = self.all_calls();
        calls.retain(|call| {
            matches!(
                call.outcome,
                CallOutcome::Failed {
                    kind: FailureKind::Panic,
                    ..
                }
            )
        });
        calls
    }

    /// What the app published to `destination`, in order. What the test itself published is not among it.
    ///
    /// # Panics
    ///
    /// Where a message is no `T`.
    #[track_caller]
    pub fn published<T: for<'a> handler::Message<'a>>(&self, destination: &str) -> Vec<T> {
        let mut decoded = Vec::new();
        for message in self.raw_published(destination) {
            decoded.push(message.decode());
        }
        decoded
    }

    /// As [`published`](Self::published), with the messages as they were sent: bytes, headers, key, delay and options.
    pub fn raw_published(&self, destination: &str) -> Vec<Message> {
        let mut messages = self.messages();
        messages.retain(|message| message.destination == destination);
        messages
    }

    /// The messages that a subscription gave up, wherever they are kept; `name` is what it reads, or the name of its handler.
    ///
    /// # Panics
    ///
    /// Where the app has no such subscription.
    #[track_caller]
    pub fn dead_letters(&self, name: &str) -> Vec<DeadLetter> {
        let mut names: Vec<_> = self.seats(name).iter().map(|seat| seat.name.clone()).collect();
        names.dedup();
        let copies = self.messages();
        let mut letters = Vec::new();
        for name in names {
            let kept = self.memory().dead_letters(&name);
            letters.extend(kept.into_iter().map(|dead| DeadLetter {
                payload: dead.payload,
                headers: dead.headers,
                key: dead.key,
                reason: dead.letter.reason,
                error: dead.letter.error,
                attempts: dead.letter.attempts,
                destination: None,
            }));
            letters.extend(copies.iter().filter_map(|copy| DeadLetter::of_copy(copy, &name)));
        }
        letters
    }

    /// The in-process broker that stands in: for faults, such as a lost link, and for what stands in its queues.
    pub fn memory(&self) -> &MemoryBroker {
        &self.stand_in.memory
    }

    /// The subscriptions that read `name`, or whose handler has it.
    #[track_caller]
    fn seats(&self, name: &str) -> Vec<&Arc<Seat>> {
        let reading: Vec<_> = self.seats.iter().filter(|seat| *seat.name == *name).collect();
        if !reading.is_empty() {
            return reading;
        }
        let handling: Vec<_> = self.seats.iter().filter(|seat| seat.handler == name).collect();
        if handling.is_empty() {
            let known: Vec<_> = self
                .seats
                .iter()
                .map(|seat| format!("`{}` (handler `{}`)", seat.name, seat.handler))
                .collect();
            panic!(
                "no subscription on {} reads `{name}` or has a handler of that name; there are: {}",
                self.label(),
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            );
        }
        handling
    }

    fn journal(&self) -> &Journal {
        &self.stand_in.journal
    }

    fn all_calls(&self) -> Vec<Call<Bytes>> {
        let book = self.journal().book();
        let here = book.entries.iter().filter(|entry| entry.broker == self.stand_in.number);
        here.filter_map(|entry| match &entry.what {
            What::Called(called) => Some(called.call.clone()),
            What::Published(_) => None,
        })
        .collect()
    }

    /// What the app published and the broker confirmed.
    fn messages(&self) -> Vec<Message> {
        let book = self.journal().book();
        let here = book.entries.iter().filter(|entry| entry.broker == self.stand_in.number);
        here.filter_map(|entry| match &entry.what {
            What::Published(published) if published.by == By::App && published.state == Confirmation::Confirmed => {
                Some(published.message.clone())
            }
            _ => None,
        })
        .collect()
    }
}

impl fmt::Debug for TestBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBroker")
            .field("label", &self.label())
            .finish_non_exhaustive()
    }
}

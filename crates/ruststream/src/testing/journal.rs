//! What happened, in order: every call and every publish of an app under test.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::record::{Call, CallOutcome, Message};
use crate::message::{Incoming, Outgoing};
use crate::transport::PublishError;

/// What happened, in order.
#[derive(Debug)]
pub(super) struct Journal {
    began: Instant,
    book: Mutex<Book>,
    /// Publishes under way.
    in_flight: AtomicUsize,
    /// One of them ended.
    pub(super) landed: Notify,
}

/// The entries of a journal.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) entries: Vec<Entry>,
    /// The last call for each message in hand, by the address of its headers.
    in_hand: HashMap<usize, usize>,
}

/// One thing that happened.
#[derive(Debug)]
pub(super) struct Entry {
    /// The time since the start.
    pub(super) at: Duration,
    /// The number of the broker.
    pub(super) broker: usize,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Called(Called),
    Published(Published),
}

/// A call, with what followed from it.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) call: Call,
    pub(super) ended_at: Option<Duration>,
    /// Why it became a dead letter, and where.
    pub(super) buried: Option<String>,
}

#[derive(Debug)]
pub(super) struct Published {
    pub(super) by: By,
    pub(super) message: Message,
    pub(super) state: Confirmation,
}

/// Who publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Test,
    App,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Confirmation {
    Awaited,
    Confirmed,
    Refused(String),
}

/// A subscription of the app under test.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) broker: usize,
    pub(super) name: Arc<str>,
    pub(super) handler: &'static str,
}

impl Journal {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            book: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            landed: Notify::new(),
        })
    }

    /// The time since the start.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Takes in a call that begins; answers its number.
    pub(super) fn called(&self, seat: &Seat, message: &Incoming<'_>) -> usize {
        let call = Call {
            handler: seat.handler,
            subscription: seat.name.to_string(),
            message: Bytes::copy_from_slice(message.payload()),
            headers: message.headers().clone(),
            key: message.key().map(Bytes::copy_from_slice),
            attempt: message.attempt(),
            outcome: CallOutcome::Running,
            retry_after: None,
        };
        let mut book = self.book();
        let number = book.entries.len();
        book.in_hand.insert(address(message), number);
        book.entries.push(Entry {
            at: self.now(),
            broker: seat.broker,
            what: What::Called(Called {
                call,
                ended_at: None,
                buried: None,
            }),
        });
        number
    }

    /// Changes the call of this number.
    pub(super) fn change(&self, number: usize, change: impl FnOnce(&mut Called)) {
        if let Some(What::Called(called)) = self.book().entries.get_mut(number).map(|entry| &mut entry.what) {
            change(called);
        }
    }

    /// Changes the last call for a message in hand.
    pub(super) fn change_last(&self, message: &Incoming<'_>, change: impl FnOnce(&mut Called)) {
        let number = self.book().in_hand.get(&address(message)).copied();
        if let Some(number) = number {
            self.change(number, change);
        }
    }

    /// Takes in messages on their way to a broker.
    pub(super) fn publishing(self: &Arc<Self>, broker: usize, by: By, messages: &[Outgoing<'_>]) -> Flight {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        let at = self.now();
        let mut book = self.book();
        let first = book.entries.len();
        book.entries.extend(messages.iter().map(|message| Entry {
            at,
            broker,
            what: What::Published(Published {
                by,
                message: Message {
                    destination: message.destination().to_owned(),
                    payload: Bytes::copy_from_slice(message.payload()),
                    headers: message.headers().clone(),
                    key: message.key().map(Bytes::copy_from_slice),
                    delay: message.delay(),
                    options: message.option_set().clone(),
                },
                state: Confirmation::Awaited,
            }),
        }));
        Flight {
            numbers: first..book.entries.len(),
            journal: self.clone(),
        }
    }
}

/// A message in hand is known again by where its headers are: they stay there until it is settled.
fn address(message: &Incoming<'_>) -> usize {
    std::ptr::from_ref(message.headers()).addr()
}

/// Messages on their way, until dropped.
pub(super) struct Flight {
    journal: Arc<Journal>,
    numbers: Range<usize>,
}

impl Flight {
    /// Takes in what the broker said.
    pub(super) fn landed(self, result: &Result<(), PublishError>) {
        let mut book = self.journal.book();
        for (position, entry) in book.entries[self.numbers.clone()].iter_mut().enumerate() {
            if let What::Published(published) = &mut entry.what {
                published.state = match result.as_ref().err().and_then(|error| error.for_message(position)) {
                    None => Confirmation::Confirmed,
                    Some(error) => Confirmation::Refused(error.to_string()),
                };
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.journal.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.journal.landed.notify_waiters();
    }
}

//! Where dead letters are kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;

use super::delivery::Message;
use super::store::{Kind, Store};
use crate::message::{HeaderMap, Outgoing};
use crate::transport::DeadLetter;

/// A dead letter: the message as it was published, and why it was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadMessage {
    /// The name it was published to.
    pub destination: String,
    /// The bytes of the message.
    pub payload: Bytes,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its key.
    pub key: Option<Bytes>,
    /// When it was published.
    pub published_at: SystemTime,
    /// Why and when it was given up.
    pub letter: DeadLetter,
    /// Who gave it up, and gets it again.
    kind: Kind,
}

impl DeadMessage {
    pub(super) fn new(message: &Message, letter: DeadLetter, kind: Kind) -> Self {
        Self {
            destination: message.origin.destination().to_owned(),
            payload: Bytes::copy_from_slice(&message.payload),
            headers: message.headers.clone(),
            key: message.key().map(Bytes::copy_from_slice),
            published_at: message.published_at,
            letter,
            kind,
        }
    }

    /// Stores it again in those queues of these that are of the kind which gave it up; false if none has room.
    pub(super) fn put_again(&self, stores: &[Arc<Store>]) -> bool {
        let mut outgoing = Outgoing::new(&self.destination, &self.payload).with_headers(&self.headers);
        if let Some(key) = &self.key {
            outgoing = outgoing.with_key(key);
        }
        let destination = Arc::from(self.destination.as_str());
        let mut kept = false;
        for store in stores.iter().filter(|store| store.kind == self.kind) {
            let mut held = store.lock();
            if !held.gone && !store.is_full(&held) {
                held.put(&outgoing, &destination, self.published_at);
                kept = true;
            }
        }
        kept
    }
}

/// The dead letters of all sources of one name, the oldest first.
#[derive(Default)]
pub(super) struct Shelf {
    letters: Mutex<Vec<DeadMessage>>,
}

impl Shelf {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<DeadMessage>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

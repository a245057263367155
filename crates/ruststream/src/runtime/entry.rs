//! A delivery in hand, with what the runtime knows of it.

use std::num::NonZeroU64;

use crate::message::Incoming;
use crate::publish::Prepared;
use crate::transport::{Delivery, Verdict};

/// A delivery with what the runtime knows of it.
pub(super) struct Entry<D> {
    pub(super) delivery: D,
    /// The lane whose order it keeps.
    pub(super) lane: Option<NonZeroU64>,
    /// Attempts made while it was kept in hand, which the transport has not counted.
    pub(super) kept_attempts: u32,
    /// When it came, in milliseconds since the subscription began; it wraps around.
    pub(super) arrived: u32,
}

/// What must be confirmed: mostly one message.
#[derive(Debug)]
#[expect(clippy::vec_box, reason = "they come in boxes and go back into the pool in them")]
pub(super) enum Messages {
    One(Box<Prepared>),
    Several(Vec<Box<Prepared>>),
}

impl Messages {
    pub(super) fn all(&self) -> &[Box<Prepared>] {
        match self {
            Self::One(message) => std::slice::from_ref(message),
            Self::Several(messages) => messages,
        }
    }

    #[expect(clippy::vec_box, reason = "they go back into the pool in their boxes")]
    #[inline]
    pub(super) fn move_to(self, into: &mut Vec<Box<Prepared>>) {
        match self {
            Self::One(message) => into.push(message),
            Self::Several(messages) => into.extend(messages),
        }
    }
}

/// A delivery that is settled once its messages are confirmed.
pub(super) struct Confirming<D> {
    pub(super) entry: Entry<D>,
    pub(super) messages: Messages,
    pub(super) purpose: Purpose,
    /// How often it was tried in vain.
    pub(super) tries: u32,
}

impl<D: Delivery> Confirming<D> {
    /// A dead letter is acked in the end, which nothing of the failed attempt may take part in.
    pub(super) fn new(mut entry: Entry<D>, messages: Messages, purpose: Purpose) -> Self {
        if purpose == Purpose::DeadLetter {
            entry.delivery.attempt_failed();
        }
        Self {
            entry,
            messages,
            purpose,
            tries: 0,
        }
    }
}

/// What is kept unsettled in hand until its time.
pub(super) enum Kept<D> {
    /// To be handled again.
    Entry(Entry<D>),
    /// To be confirmed again.
    Confirming(Confirming<D>),
}

impl<D> Kept<D> {
    pub(super) fn entry(&self) -> &Entry<D> {
        match self {
            Self::Entry(entry) => entry,
            Self::Confirming(confirming) => &confirming.entry,
        }
    }

    pub(super) fn into_entry(self) -> Entry<D> {
        match self {
            Self::Entry(entry) => entry,
            Self::Confirming(confirming) => confirming.entry,
        }
    }
}

/// What a message that must be confirmed is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Reply,
    DeadLetter,
}

impl<D: Delivery> Entry<D> {
    pub(super) fn new(delivery: D, lane: Option<NonZeroU64>, arrived: u32) -> Self {
        Self {
            delivery,
            lane,
            kept_attempts: 0,
            arrived,
        }
    }

    /// The attempt that the message is at, those counted that it made while kept in hand.
    pub(super) fn attempt(&self) -> u32 {
        self.delivery.attempt().saturating_add(self.kept_attempts)
    }

    /// Whether the message was never handed out before.
    pub(super) fn is_first(&self) -> bool {
        self.delivery.attempt() == 1 && self.kept_attempts == 0
    }

    /// The message as a handler sees it.
    pub(super) fn incoming(&self) -> Incoming<'_> {
        incoming(&self.delivery).with_attempt(self.attempt())
    }

    pub(super) fn lane(&self) -> Option<NonZeroU64> {
        self.lane
    }

    /// The end of a message that is given back because this app stops: it keeps its place, so that those of its lane do not pass
    /// it, and the attempts count that were made here.
    pub(super) fn given_back(self) -> (D::Receipt, Verdict) {
        let attempts = self.attempt().saturating_sub(1);
        let verdict = if self.kept_attempts == 0 {
            Verdict::Release
        } else {
            Verdict::Return { attempts }
        };
        (self.delivery.into_receipt(), verdict)
    }
}

pub(super) fn incoming<D: Delivery>(delivery: &D) -> Incoming<'_> {
    Incoming::new(delivery.payload(), delivery.headers())
        .with_key(delivery.key())
        .with_attempt(delivery.attempt())
        .with_published_at(delivery.published_at())
        .with_fields(delivery.fields())
}

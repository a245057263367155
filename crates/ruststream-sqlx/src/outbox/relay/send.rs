//! Publishing what was claimed: in groups, and one of each key at a time.

use std::collections::{HashSet, VecDeque};

use ruststream::publish::Publishing;
use ruststream::transport::{ErrorKind, PublishError, TransportError};
use tokio::time::{Instant, timeout};

use super::{Place, Settings};
use crate::clock::millis;
use crate::outbox::fields::{publishing, short};
use crate::outbox::records::{Failed, Finished, Record};

/// What became of the records of one claim.
pub(super) struct Sent {
    pub(super) marks: Finished,
    /// Why the broker could not be reached, where that was so.
    pub(super) broker_away: Option<TransportError>,
}

/// The records of one claim, on their way.
pub(super) struct Batch<'a> {
    place: &'a Place,
    settings: &'a Settings,
    claimed_at: Instant,
    marks: Finished,
    /// Keys of which a record failed: what is behind it waits.
    stopped: HashSet<Vec<u8>>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(place: &'a Place, settings: &'a Settings, token: i64) -> Self {
        Self {
            place,
            settings,
            claimed_at: Instant::now(),
            marks: Finished {
                token,
                keep: settings.keep.is_some(),
                ..Finished::default()
            },
            stopped: HashSet::new(),
        }
    }

    /// Publishes them. What the time does not suffice for is released.
    pub(super) async fn send(mut self, records: Vec<Record>) -> Sent {
        let mut left = VecDeque::new();
        for record in records {
            // Counted where it was in hand of relays that never came back: it may be what ended them.
            if record.attempts >= self.settings.attempts {
                self.fail(
                    record,
                    "it was in the hands of relays that were ended, each time".to_owned(),
                );
            } else {
                left.push_back(record);
            }
        }
        let mut broker_away = None;
        while !left.is_empty() && broker_away.is_none() {
            // A lease that has ended makes them someone else's: far from that, it stops.
            if self.claimed_at.elapsed() > self.settings.lease / 2 {
                break;
            }
            let group = self.next_group(&mut left);
            if !group.is_empty() {
                broker_away = self.send_group(group).await.err();
            }
        }
        self.marks.released.extend(left.into_iter().map(|record| record.id));
        self.marks.published.sort_unstable();
        self.marks.released.sort_unstable();
        Sent {
            marks: self.marks,
            broker_away,
        }
    }

    /// The next of each key, and all that have none; what is behind a failure is released.
    fn next_group(&mut self, left: &mut VecDeque<Record>) -> Vec<Record> {
        let mut group = Vec::new();
        let mut keys: HashSet<Vec<u8>> = HashSet::new();
        let mut later = VecDeque::new();
        while let Some(record) = left.pop_front() {
            match &record.key {
                None => group.push(record),
                Some(key) if self.stopped.contains(key) => self.marks.released.push(record.id),
                Some(key) if keys.contains(key) => later.push_back(record),
                Some(key) => {
                    keys.insert(key.clone());
                    group.push(record);
                }
            }
        }
        *left = later;
        group
    }

    /// Publishes records that do not depend on each other.
    ///
    /// # Errors
    ///
    /// Where the broker is away; what it did not confirm is released.
    async fn send_group(&mut self, group: Vec<Record>) -> Result<(), TransportError> {
        let outcomes = self.publish(&group).await;
        let mut away = None;
        if group.len() == 1 || outcomes.iter().any(Option::is_none) {
            for (record, failure) in group.into_iter().zip(outcomes) {
                self.judge(record, failure, &mut away).await;
            }
        } else {
            // One of them may have spoiled it for all: each by itself, unless there is no one to take them.
            away = self.place.answers().await.err();
            for record in group {
                if away.is_some() || self.claimed_at.elapsed() > self.settings.lease / 2 {
                    self.release(record);
                    continue;
                }
                let failure = self.publish(std::slice::from_ref(&record)).await.pop().flatten();
                self.judge(record, failure, &mut away).await;
            }
        }
        match away {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Why each of them was not confirmed.
    async fn publish(&self, group: &[Record]) -> Vec<Option<TransportError>> {
        let mut outcomes: Vec<Option<TransportError>> = Vec::with_capacity(group.len());
        let mut messages: Vec<Publishing> = Vec::with_capacity(group.len());
        for record in group {
            let Record {
                destination,
                key,
                headers,
                payload,
                ..
            } = record;
            match publishing(&self.place.publisher, destination, key.as_deref(), headers, payload) {
                Ok(message) => {
                    messages.push(message);
                    outcomes.push(None);
                }
                Err(text) => outcomes.push(Some(TransportError::new(ErrorKind::Invalid, text))),
            }
        }
        let limit = self.settings.lease / 3;
        let published = match timeout(limit, self.place.publisher.publish_all(messages)).await {
            Ok(published) => published,
            Err(_) => Err(PublishError::all(TransportError::new(
                ErrorKind::Timeout,
                format!("it was not confirmed within {limit:?}"),
            ))),
        };
        if let Err(error) = published {
            let sent = outcomes.iter_mut().filter(|outcome| outcome.is_none());
            for (place, outcome) in sent.enumerate() {
                *outcome = error
                    .for_message(place)
                    .map(|error| TransportError::new(error.kind(), error.to_string()));
            }
        }
        outcomes
    }

    /// Notes what becomes of a record. Where it failed because the broker is away, or has no room for what it would take at another
    /// time, it is released, and no attempt is counted: an outage parks nothing.
    async fn judge(&mut self, record: Record, failure: Option<TransportError>, away: &mut Option<TransportError>) {
        let Some(error) = failure else {
            self.marks.published.push(record.id);
            return;
        };
        if error.is_transient() {
            if away.is_none() && (error.kind() == ErrorKind::Busy || self.place.answers().await.is_err()) {
                *away = Some(error);
            } else if away.is_none() {
                return self.fail(record, error.to_string());
            }
            return self.release(record);
        }
        self.fail(record, error.to_string());
    }

    /// Counts a failed attempt.
    fn fail(&mut self, record: Record, error: String) {
        let attempts = record.attempts.saturating_add(1);
        let Record {
            id, destination, key, ..
        } = record;
        let error = short(error);
        let last = attempts >= self.settings.attempts;
        if last {
            tracing::error!(
                id,
                destination,
                attempts,
                error,
                "a record of the outbox is parked: list it by `Outbox::parked`, and replay or purge it"
            );
        } else {
            tracing::warn!(
                id,
                destination,
                attempts,
                error,
                "a record of the outbox was not published; it is tried again"
            );
        }
        let delay = self.settings.backoff.delay(attempts, fastrand::f64());
        self.marks.failed.push(Failed {
            id,
            attempts,
            again: (!last).then(|| millis(delay).max(1)),
            error,
        });
        if let Some(key) = key
            && (!last || self.settings.parked_stop)
        {
            self.stopped.insert(key);
        }
    }

    fn release(&mut self, record: Record) {
        self.marks.released.push(record.id);
        if let Some(key) = record.key {
            self.stopped.insert(key);
        }
    }
}

//! The loop of a relay: mark what has ended and claim what is next, publish, and so on.

use std::time::Duration;

use ruststream::app::BackgroundContext;
use ruststream::transport::TransportError;
use tokio::time::{Instant, sleep, timeout};

use super::send::{Batch, Sent};
use super::status::InHand;
use super::{Place, Settings};
use crate::clock::millis;
use crate::lease::random_token;
use crate::outbox::link::Link;
use crate::outbox::receipts::prune;
use crate::outbox::records::{Claim, Finished, Old, Record};
use crate::outbox::{Outbox, OutboxDatabase};

/// A claim brings about this many bytes at most, going by the largest record seen of late.
const CLAIM_BYTES: usize = 16 * 1024 * 1024;

/// What a record may be like before the first is seen.
const UNKNOWN: usize = 64 * 1024;

/// How often published records are looked for that are old enough to go.
const CLEANING: Duration = Duration::from_secs(30);

/// The waits for a broker or database that is away grow up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(super) struct Turns<'a, DB: OutboxDatabase> {
    outbox: &'a Outbox<DB>,
    settings: &'a Settings,
    place: &'a Place,
    context: &'a BackgroundContext,
    link: Link<DB>,
    largest: usize,
    failures: u32,
}

impl<'a, DB: OutboxDatabase> Turns<'a, DB> {
    pub(super) fn new(
        outbox: &'a Outbox<DB>,
        settings: &'a Settings,
        place: &'a Place,
        context: &'a BackgroundContext,
    ) -> Self {
        Self {
            outbox,
            settings,
            place,
            context,
            link: Link::new(outbox.pool.clone()),
            largest: UNKNOWN,
            failures: 0,
        }
    }

    /// Works until the app stops, and then as long as there is anything to publish and time for it. The first of several workers
    /// cleans up.
    pub(super) async fn work(mut self, cleans: bool) {
        let status = &*self.outbox.status;
        // What was published and is not marked yet.
        let mut finished: Option<Finished> = None;
        let mut in_hand: Option<InHand<'_>> = None;
        let mut cleaned: Option<Instant> = None;
        let mut ends: Option<Instant> = None;
        let mut away = false;
        loop {
            if let Some(left) = self.context.time_left() {
                // Half of the time is for what is begun then, and for its marks.
                let end = *ends.get_or_insert_with(|| Instant::now() + left / 2);
                if Instant::now() >= end {
                    break;
                }
            }
            let mut wakes = status.wakes();
            let asked = status.asked();
            let token = random_token();
            let records = match self.turn(finished.as_ref(), (!away).then_some(token)).await {
                Ok(records) => records,
                Err(error) => {
                    self.context.failing(error.to_string());
                    if self.failures == 0 {
                        tracing::warn!(%error, "the relay of the outbox cannot reach its database; it tries again");
                    }
                    if self.wait_longer().await {
                        break;
                    }
                    continue;
                }
            };
            finished = None;
            drop(in_hand.take());
            if away {
                // Marked; now the broker is waited for.
                if self.wait_longer().await {
                    break;
                }
                away = self.still_away().await;
                continue;
            }
            if records.is_empty() {
                self.context.working();
                self.failures = 0;
                status.found_nothing(asked);
                if self.context.is_stopping() {
                    break;
                }
                if cleans {
                    self.clean(&mut cleaned).await;
                }
                let pause = self.settings.poll.mul_f64(0.8 + 0.4 * fastrand::f64());
                tokio::select! {
                    _ = wakes.changed() => {}
                    () = sleep(pause) => {}
                    () = self.context.stopping() => {}
                }
                continue;
            }
            in_hand = Some(status.take(records.len()));
            let size = |record: &Record| record.payload.len() + record.headers.len();
            let largest = records.iter().map(size).max().unwrap_or(0);
            // It forgets a large one slowly.
            self.largest = largest.max(self.largest - self.largest / 8);
            let sent = Batch::new(self.place, self.settings, token).send(records).await;
            let Sent { marks, broker_away } = sent;
            if let Some(error) = broker_away {
                if self.failures == 0 {
                    tracing::warn!(broker = self.place.label(), %error, "the outbox waits for the broker");
                }
                self.context.failing(format!("{}: {error}", self.place.label()));
                away = true;
            } else {
                self.context.working();
                self.failures = 0;
            }
            finished = Some(marks);
        }
        self.end(finished).await;
    }

    /// Marks what has ended, and claims under `token`, if there is one.
    async fn turn(&mut self, finished: Option<&Finished>, token: Option<i64>) -> Result<Vec<Record>, TransportError> {
        let claim = token.map(|token| Claim {
            limit: i64::try_from(self.settings.batch.min(CLAIM_BYTES / self.largest.max(1)).max(1)).unwrap_or(1),
            lease: millis(self.settings.lease),
            token,
            parked_stop: self.settings.parked_stop,
        });
        // Beyond that, what was claimed would be someone else's soon.
        let limit = (self.settings.lease / 3).clamp(Duration::from_secs(1), Duration::from_secs(10));
        let mut connection = self.link.take().await?;
        let turn = timeout(limit, DB::turn(&mut connection, finished, claim)).await;
        self.link.put(connection, turn)
    }

    /// Whether the broker does not answer yet.
    async fn still_away(&mut self) -> bool {
        match self.place.answers().await {
            Ok(()) => false,
            Err(error) => {
                self.context.failing(format!("{}: {error}", self.place.label()));
                true
            }
        }
    }

    /// Waits after a failure, longer after each; true if the app stops.
    async fn wait_longer(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        let ceiling = Duration::from_millis(100)
            .saturating_mul(1 << self.failures.min(6))
            .min(LONGEST_WAIT);
        let wait = ceiling / 2 + ceiling.mul_f64(fastrand::f64() / 2.0);
        self.context.stops_within(wait).await
    }

    /// Deletes published records that are old enough, now and then.
    async fn clean(&mut self, cleaned: &mut Option<Instant>) {
        let Some(keep) = self.settings.keep else { return };
        let due = cleaned.is_none_or(|at| at.elapsed() >= CLEANING.min(keep.max(Duration::from_millis(100))));
        if !due {
            return;
        }
        *cleaned = Some(Instant::now());
        if let Err(error) = prune(&mut self.link, Old::Published, keep).await {
            tracing::warn!(%error, "published records of the outbox could not be cleaned up; it is tried again");
        }
    }

    /// Marks what was published last. Where that fails, the lease ends it: what was published is published again then.
    async fn end(&mut self, finished: Option<Finished>) {
        if finished.is_some() {
            for _ in 0..3 {
                match self.turn(finished.as_ref(), None).await {
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, "the relay of the outbox ends, and cannot mark what it has published; it is published again");
                        sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        }
        self.link.close().await;
    }
}

//! The service that sends again what no one has marked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ruststream::app::{Background, BackgroundContext, HookResult};
use ruststream::publish::Publishing;
use ruststream::transport::TransportError;
use tokio::time::{Instant, timeout};

use super::Shared;
use crate::clock::millis;
use crate::outbox::OutboxDatabase;
use crate::outbox::fields::publishing;
use crate::outbox::link::Link;
use crate::outbox::receipts::prune;
use crate::outbox::records::{Old, TrackedDue, TrackedLeftover};
use crate::outbox::relay::Place;

const LIMIT: Duration = Duration::from_secs(10);

/// How many are sent again at a time.
const BATCH: i64 = 100;

/// How often leftovers are looked for, where they are due later than that.
const LONGEST_POLL: Duration = Duration::from_secs(1);

/// How often marks are looked for that are old enough to go.
const CLEANING: Duration = Duration::from_mins(1);

/// The background service of [`Tracked`](super::Tracked): it sends again, as long as the app runs, what was recorded and not marked in
/// time, and deletes old marks in bounded batches. Any number may run on one database.
///
/// What it sends passes by the publish layers: it has passed them before it was recorded.
pub struct TrackedResend<DB: OutboxDatabase>(pub(super) Arc<Shared<DB>>);

impl<DB: OutboxDatabase> TrackedResend<DB> {
    /// Sends what is due, a batch; answers how many there were.
    async fn turn(&self, link: &mut Link<DB>, place: &Place) -> Result<usize, TransportError> {
        let settings = &self.0.settings;
        let due = TrackedDue {
            limit: BATCH,
            resend: millis(settings.resend_after),
            longest: millis(settings.longest),
            attempts: settings.attempts,
        };
        let mut connection = link.take().await?;
        let claimed = timeout(LIMIT, DB::tracked_due(&mut connection, due)).await;
        let leftovers = link.put(connection, claimed)?;
        if leftovers.is_empty() {
            return Ok(0);
        }
        let count = leftovers.len();
        let publisher = place.publisher.without_layers();
        let mut messages: Vec<Publishing> = Vec::with_capacity(leftovers.len());
        for leftover in &leftovers {
            let TrackedLeftover {
                id,
                attempts,
                destination,
                key,
                headers,
                payload,
            } = leftover;
            tracing::info!(
                id,
                destination,
                attempts,
                "a tracked message was not marked in time; it is sent again"
            );
            match publishing(&publisher, destination, key.as_deref(), headers, payload) {
                Ok(message) => messages.push(message),
                Err(error) => tracing::error!(id, error, "a tracked message cannot be sent again"),
            }
        }
        let sent = timeout(LIMIT, publisher.publish_all(messages)).await;
        if !matches!(sent, Ok(Ok(())))
            && let Err(away) = place.answers().await
        {
            let ids: Vec<String> = leftovers.into_iter().map(|leftover| leftover.id).collect();
            let wait = millis(settings.resend_after.min(Duration::from_secs(5)));
            let mut connection = link.take().await?;
            let undone = timeout(LIMIT, DB::tracked_undo(&mut connection, &ids, wait)).await;
            link.put(connection, undone)?;
            return Err(away);
        }
        // Of those that failed by themselves an attempt is counted, and they come again.
        Ok(count)
    }
}

impl<DB: OutboxDatabase> Background for TrackedResend<DB> {
    fn name(&self) -> String {
        "resending of tracked messages".to_owned()
    }

    async fn run(&self, context: &BackgroundContext) -> HookResult {
        let Shared { outbox, settings, .. } = &*self.0;
        let place = Place::on(context.app(), settings.broker.as_deref())?;
        super::super::prepare(&outbox.pool, outbox.migrate).await?;
        context.working();
        let mut link = Link::new(outbox.pool.clone());
        let mut cleaned: Option<Instant> = None;
        while !context.is_stopping() {
            let poll = (settings.resend_after / 4).clamp(Duration::from_millis(10), LONGEST_POLL);
            let wait = match self.turn(&mut link, &place).await {
                Ok(sent) => {
                    context.working();
                    if sent > 0 { Duration::ZERO } else { poll }
                }
                Err(error) => {
                    context.failing(error.to_string());
                    LONGEST_POLL
                }
            };
            if cleaned.is_none_or(|at| at.elapsed() > CLEANING.min(settings.keep)) {
                cleaned = Some(Instant::now());
                if let Err(error) = prune(&mut link, Old::Tracked, settings.keep).await {
                    tracing::warn!(%error, "old marks of tracked messages could not be cleaned up; it is tried again");
                }
            }
            context.stops_within(wait.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
        }
        link.close().await;
        Ok(())
    }
}

impl<DB: OutboxDatabase> fmt::Debug for TrackedResend<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TrackedResend").field(&self.0.settings).finish()
    }
}

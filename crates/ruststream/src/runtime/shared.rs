//! What the parts of one subscription share, whatever its transport: settings, counts, signals, and how it fares.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::room::ServiceTime;
use crate::publish::Pool;
use crate::transport::{Capabilities, TransportError, hide_secrets};

/// What the parts of one subscription share.
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    /// The name of the handler.
    pub(crate) handler: &'static str,
    pub(crate) settings: Settings,
    pub(crate) capabilities: Capabilities,
    pub(crate) counts: Counts,
    pub(crate) signals: Signals,
    /// Where replies go once they are sent, and the layers that learn of it.
    pub(crate) pool: Arc<Pool>,
    condition: Mutex<Condition>,
    /// How long a handler takes for one message, in nanoseconds, smoothed. Zero while unknown.
    service_nanos: AtomicU64,
    /// When the last failure was told, and how many were not since.
    told: Mutex<(Option<Instant>, u64)>,
}

/// Of the failures of a subscription, one is told in this time and the others are counted: an outage does not flood the log.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The signals between the parts of one subscription.
pub(crate) struct Signals {
    /// No more is to be fetched; work in hand is finished.
    pub(crate) stop: CancellationToken,
    /// The grace period is over: calls are dropped.
    pub(crate) abandon: CancellationToken,
    pub(crate) paused: watch::Sender<bool>,
    pub(crate) room: Notify,
    pub(crate) finished: Notify,
    pub(crate) held: Notify,
}

impl Signals {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            abandon: CancellationToken::new(),
            paused: watch::Sender::new(false),
            room: Notify::new(),
            finished: Notify::new(),
            held: Notify::new(),
        }
    }
}

/// What one subscription has done so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acked: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) dead_lettered: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) in_hand: AtomicU64,
    pub(crate) workers: AtomicU64,
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64, number: usize) {
        counter.fetch_add(number as u64, Ordering::Relaxed);
    }
}

/// How a subscription fares.
#[derive(Debug, Default)]
struct Condition {
    phase: Phase,
    fetching: Option<Problem>,
    settling: Option<Problem>,
    burying: Option<Problem>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// From the beginning: a subscription is made of halves that are open, so who has started the app sees it ready.
    #[default]
    Running,
    Stopping,
    Stopped,
    Failed,
}

/// What keeps a subscription from working, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) text: String,
    pub(crate) since: SystemTime,
}

/// The side of a subscription that a problem lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Fetching,
    Settling,
    /// Storing dead letters.
    Burying,
}

impl Shared {
    pub(crate) fn new(
        name: Arc<str>,
        handler: &'static str,
        settings: Settings,
        capabilities: Capabilities,
        signals: Signals,
        pool: Arc<Pool>,
    ) -> Self {
        Self {
            name,
            handler,
            settings,
            capabilities,
            counts: Counts::default(),
            signals,
            pool,
            condition: Mutex::default(),
            service_nanos: AtomicU64::new(0),
            told: Mutex::default(),
        }
    }

    fn condition(&self) -> std::sync::MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, phase: Phase) {
        let mut condition = self.condition();
        if condition.phase != Phase::Failed {
            condition.phase = phase;
        }
    }

    /// Ends the subscription for a reason that trying again cannot mend.
    pub(crate) fn fail(&self, error: &TransportError) {
        tracing::error!(subscription = %self.name, error = %chain(error), "the subscription has failed for good");
        let mut condition = self.condition();
        condition.phase = Phase::Failed;
        condition.fetching = Some(Problem {
            text: chain(error),
            since: SystemTime::now(),
        });
    }

    /// Notes a problem that may pass; it stands in the health until [`mended`](Self::mended).
    pub(crate) fn troubled(&self, side: Side, error: &TransportError, wait: Duration) {
        let text = chain(error);
        let mut condition = self.condition();
        let problem = condition.on(side);
        if let Some(known) = problem {
            tracing::debug!(subscription = %self.name, error = %text, ?wait, "still in trouble");
            known.text = text;
        } else {
            tracing::warn!(subscription = %self.name, error = %text, ?wait, "in trouble; trying again with backoff");
            *problem = Some(Problem {
                text,
                since: SystemTime::now(),
            });
        }
    }

    /// Notes that a side works.
    pub(crate) fn mended(&self, side: Side) {
        if let Some(problem) = self.condition().on(side).take() {
            tracing::info!(
                subscription = %self.name,
                after = ?problem.since.elapsed().unwrap_or_default(),
                "works again"
            );
        }
    }

    /// The phase, and what is wrong, the worst first.
    pub(crate) fn fares(&self) -> (Phase, Option<Problem>) {
        let condition = self.condition();
        (
            condition.phase,
            [&condition.fetching, &condition.settling, &condition.burying]
                .into_iter()
                .find_map(Clone::clone),
        )
    }

    /// Whether a failure is to be told now; if so, how many were not told since the last.
    pub(crate) fn may_tell(&self) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if told.0.is_some_and(|last| now - last < TELL_EVERY) {
            told.1 += 1;
            return None;
        }
        told.0 = Some(now);
        Some(std::mem::take(&mut told.1))
    }

    /// Takes note of how long `messages` took together.
    pub(crate) fn served(&self, messages: u32, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let sample = (took / u64::from(messages.max(1))).max(1);
        let known = self.service_nanos.load(Ordering::Relaxed);
        let smoothed = if known == 0 {
            sample
        } else {
            known - known / 8 + sample / 8
        };
        self.service_nanos.store(smoothed.max(1), Ordering::Relaxed);
    }

    /// How long a handler takes for one message, once known.
    pub(super) fn service_time(&self) -> Option<ServiceTime> {
        ServiceTime::new(self.service_nanos.load(Ordering::Relaxed))
    }
}

impl Condition {
    fn on(&mut self, side: Side) -> &mut Option<Problem> {
        match side {
            Side::Fetching => &mut self.fetching,
            Side::Settling => &mut self.settling,
            Side::Burying => &mut self.burying,
        }
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    // The words of a client library are not ours.
    hide_secrets(text)
}

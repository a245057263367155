//! How a running app fares.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::{BackgroundHealth, BackgroundState};
use crate::runtime::{Phase, Shared};

/// How a running app fares, as of the moment it was asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Health {
    /// Each subscription, in the order of their mounting.
    pub subscriptions: Vec<SubscriptionHealth>,
    /// Each background service, in the order of their adding.
    pub background: Vec<BackgroundHealth>,
}

impl Health {
    /// True if every subscription takes and settles messages, or is paused on purpose, and no background service fails.
    pub fn is_ready(&self) -> bool {
        let well =
            |one: &SubscriptionHealth| matches!(one.state, SubscriptionState::Running | SubscriptionState::Paused);
        let failing = |one: &BackgroundHealth| one.state == BackgroundState::Failing;
        self.subscriptions.iter().all(well) && !self.background.iter().any(failing)
    }

    /// The subscription of this name.
    pub fn subscription(&self, name: &str) -> Option<&SubscriptionHealth> {
        self.subscriptions.iter().find(|one| one.name == name)
    }
}

/// How one subscription fares.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SubscriptionHealth {
    /// What it reads.
    pub name: String,
    /// The broker that it reads from.
    pub broker: String,
    /// What it does.
    pub state: SubscriptionState,
    /// What is wrong, where something is.
    pub reason: Option<String>,
    /// Since when it is wrong.
    pub since: Option<SystemTime>,
    /// Workers that are alive.
    pub workers: u64,
    /// Messages fetched and not settled.
    pub in_hand: u64,
    /// Messages handled, their replies confirmed.
    pub acked: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Retries begun.
    pub retried: u64,
    /// Messages made dead letters.
    pub dead_lettered: u64,
    /// Messages thrown away because their handler or a setting said so.
    pub dropped: u64,
    /// Receipts that came too late and settled nothing.
    pub stale: u64,
}

/// What a subscription does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SubscriptionState {
    /// It fetches, handles and settles.
    Running,
    /// It was paused.
    Paused,
    /// Its transport fails; it tries again with backoff.
    Degraded,
    /// It ended for a reason that trying again cannot mend.
    Failed,
    /// It finishes what is in hand.
    Stopping,
    /// It has ended.
    Stopped,
}

impl SubscriptionHealth {
    pub(super) fn of(shared: &Shared, broker: &str) -> Self {
        let (phase, problem) = shared.fares();
        let state = match phase {
            Phase::Failed => SubscriptionState::Failed,
            Phase::Stopping => SubscriptionState::Stopping,
            Phase::Stopped => SubscriptionState::Stopped,
            Phase::Running if problem.is_some() => SubscriptionState::Degraded,
            Phase::Running if *shared.signals.paused.borrow() => SubscriptionState::Paused,
            Phase::Running => SubscriptionState::Running,
        };
        let counts = &shared.counts;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            name: shared.name.to_string(),
            broker: broker.to_owned(),
            state,
            since: problem.as_ref().map(|problem| problem.since),
            reason: problem.map(|problem| problem.text),
            workers: read(&counts.workers),
            in_hand: read(&counts.in_hand),
            acked: read(&counts.acked),
            failed: read(&counts.failed),
            retried: read(&counts.retried),
            dead_lettered: read(&counts.dead_lettered),
            dropped: read(&counts.dropped),
            stale: read(&counts.stale),
        }
    }
}

//! An app at work.

use std::ops::Deref;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use super::background::{self, Services};
use super::hooks::{self, Hooks};
use super::late::Late;
use super::{AppError, Health, SubscriptionHealth};
use crate::publish::{Client, Publisher};
use crate::runtime::{Phase, Shared};
use crate::transport::{ErrorKind, TransportError};

/// How long background services may take to end where handlers have used up the grace period.
const LEAST_GRACE: Duration = Duration::from_secs(1);

/// An app at work. Dropping it begins a shutdown without waiting for it.
#[must_use = "dropping a running app stops it"]
pub struct Running {
    pub(super) handle: AppHandle,
    pub(super) tasks: JoinSet<()>,
    /// The background services.
    pub(super) services: JoinSet<()>,
    pub(super) hooks: Hooks,
}

/// What can be asked of a running app and told to it, from anywhere. Cheap to clone.
#[derive(Clone)]
pub struct AppHandle {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) stop: CancellationToken,
    pub(super) grace: Duration,
    /// Label and publisher of each broker, in the order of their adding.
    pub(super) publishers: Vec<(String, Publisher)>,
    /// Each subscription with the place of its broker in `publishers`.
    pub(super) subscriptions: Vec<(Arc<Shared>, usize)>,
    pub(super) services: Services,
    pub(super) late: Late,
}

impl AppHandle {
    /// A publisher on the app's first broker.
    ///
    /// # Panics
    ///
    /// Never: an app without a broker does not start.
    pub fn publisher(&self) -> Publisher {
        self.inner.publishers[0].1.clone()
    }

    /// A publisher on the broker of this label, as [`Health`] shows it; `None` where the app has none.
    pub fn publisher_on(&self, broker: &str) -> Option<Publisher> {
        self.inner
            .publishers
            .iter()
            .find(|(label, _)| label == broker)
            .map(|(_, publisher)| publisher.clone())
    }

    /// A client on the app's first broker: it sends requests and awaits their answers. It reads a place for replies of its own, so
    /// make one and keep it.
    ///
    /// # Errors
    ///
    /// Where the broker refuses the place for replies, or the app has shut down. A broker that is away is waited for, unless
    /// the app [fails fast](super::AppBuilder::fail_fast).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, nothing stays open.
    pub async fn client(&self) -> Result<Client, AppError> {
        self.client_by(0, self.publisher()).await
    }

    /// As [`client`](Self::client), on the broker of this label, as [`Health`] shows it.
    ///
    /// # Errors
    ///
    /// As [`client`](Self::client), and where the app has no such broker.
    ///
    /// # Cancel safety
    ///
    /// As [`client`](Self::client).
    pub async fn client_on(&self, broker: &str) -> Result<Client, AppError> {
        let mut known = self.inner.publishers.iter();
        match known.position(|(label, _)| label == broker) {
            Some(place) => self.client_by(place, self.inner.publishers[place].1.clone()).await,
            None => Err(AppError::failed(format!(
                "the app has no broker of the label `{broker}`"
            ))),
        }
    }

    /// A client on the broker at this place, whose requests go by this publisher.
    pub(crate) async fn client_by(&self, broker: usize, publisher: Publisher) -> Result<Client, AppError> {
        self.inner.late.open_client(broker, publisher).await
    }

    /// Asks the broker of this label, as [`Health`] shows it, whether it is there.
    ///
    /// # Errors
    ///
    /// Where it does not answer, or the app has no such broker.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn ping_on(&self, broker: &str) -> Result<(), TransportError> {
        match self.inner.publishers.iter().position(|(label, _)| label == broker) {
            Some(place) => self.inner.late.ping(place).await,
            None => Err(TransportError::new(
                ErrorKind::Invalid,
                format!("the app has no broker of the label `{broker}`"),
            )),
        }
    }

    /// The labels of the app's brokers, in the order of their adding.
    pub fn brokers(&self) -> impl Iterator<Item = &str> {
        self.inner.publishers.iter().map(|(label, _)| &**label)
    }

    /// How the app fares.
    pub fn health(&self) -> Health {
        let late = self.inner.late.subscriptions();
        let subscriptions = self.inner.subscriptions.iter().chain(&late);
        Health {
            subscriptions: subscriptions
                .map(|(shared, broker)| SubscriptionHealth::of(shared, &self.inner.publishers[*broker].0))
                .collect(),
            background: self.inner.services.health(),
        }
    }

    /// Waits until no background service has anything to do now.
    #[cfg(feature = "testing")]
    pub(crate) async fn caught_up(&self) {
        self.inner.services.caught_up().await;
    }

    /// Stops fetching for the subscriptions of this name, until [`resume`](Self::resume); what is in hand is finished. False
    /// where there is none.
    pub fn pause(&self, subscription: &str) -> bool {
        self.set_paused(subscription, true)
    }

    /// Fetches again after a [`pause`](Self::pause). False where there is no such subscription.
    pub fn resume(&self, subscription: &str) -> bool {
        self.set_paused(subscription, false)
    }

    fn set_paused(&self, subscription: &str, paused: bool) -> bool {
        let mut found = false;
        for (shared, _) in &self.inner.subscriptions {
            if *shared.name == *subscription {
                found = true;
                shared.signals.paused.send_replace(paused);
            }
        }
        found
    }

    /// Begins a shutdown, without waiting for it.
    pub fn stop(&self) {
        self.inner.stop.cancel();
    }

    /// Waits until the app is told to stop.
    pub(super) async fn stopping(&self) {
        self.inner.stop.cancelled().await;
    }
}

impl Running {
    /// Waits until the app has been told to stop, by [`AppHandle::stop`] or because every subscription failed for good, and
    /// shuts it down.
    ///
    /// # Errors
    ///
    /// Where a subscription failed for good, or a hook fails.
    pub async fn finished(mut self) -> Result<(), AppError> {
        // A subscription ends by itself only by failing for good; when the last has, nothing is left to run for.
        let ended = async {
            while self.tasks.join_next().await.is_some() {}
            if self.handle.inner.subscriptions.is_empty() {
                std::future::pending::<()>().await;
            }
        };
        let stopping = self.handle.clone();
        tokio::select! {
            () = ended => {}
            () = stopping.stopping() => {}
        }
        self.shutdown().await
    }

    /// Shuts the app down: no more is fetched, work in hand is finished within the grace period, the rest is released.
    ///
    /// # Errors
    ///
    /// Where a subscription failed for good, or a hook fails.
    pub async fn shutdown(mut self) -> Result<(), AppError> {
        let Hooks {
            on_shutdown,
            after_shutdown,
            ..
        } = std::mem::take(&mut self.hooks);
        let grace = self.handle.inner.grace;
        let before = hooks::run_within(grace, "on_shutdown", on_shutdown, self.handle.clone()).await;
        self.handle.stop();
        let until = Instant::now() + grace;
        while self.tasks.join_next().await.is_some() {}
        // Only now: what the last handlers left to them is done, too. A moment is theirs in any case.
        let until = until.max(Instant::now() + LEAST_GRACE);
        self.handle.inner.services.stop(until);
        background::finish(std::mem::take(&mut self.services), until).await;
        // Only now: a handler may have waited for an answer.
        self.handle.inner.late.shut_down().await;
        let after = hooks::run_within(grace, "after_shutdown", after_shutdown, ()).await;
        for (shared, broker) in &self.handle.inner.subscriptions {
            if let (Phase::Failed, problem) = shared.fares() {
                let reason = problem.map(|problem| problem.text).unwrap_or_default();
                let broker = &self.handle.inner.publishers[*broker].0;
                return Err(AppError::failed(format!(
                    "`{}` on {broker} has failed for good: {reason}",
                    shared.name
                )));
            }
        }
        before.and(after)
    }

    /// Ends everything where it is, as a crash of the process would: nothing in hand is settled or given back.
    #[cfg(feature = "conformance")]
    pub(crate) async fn kill(mut self) {
        self.tasks.shutdown().await;
        self.services.shutdown().await;
    }

    /// What can be kept beyond this value and given to others.
    pub fn handle(&self) -> AppHandle {
        self.handle.clone()
    }
}

impl Deref for Running {
    type Target = AppHandle;

    fn deref(&self) -> &AppHandle {
        &self.handle
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        // The tasks drain by themselves; aborting them would cost messages their attempts.
        self.tasks.detach_all();
        self.handle
            .inner
            .services
            .stop(Instant::now() + self.handle.inner.grace);
        self.services.detach_all();
        self.handle.inner.late.let_go();
    }
}

impl std::fmt::Debug for AppHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppHandle")
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

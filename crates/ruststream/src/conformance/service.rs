//! An app over the transport under check: how a check starts, watches, stops and kills it.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::rig::{Rig, within};
use super::violation::ensure;
use super::{Harness, Violation};
use crate::app::{AppHandle, AppInfo, Running, RustStream, Subscription, SubscriptionHealth};
use crate::handler::Subscriber;

/// How often a condition is looked at that nothing signals.
const LOOK: Duration = Duration::from_millis(2);
/// How much longer than its grace period a shutdown may take.
pub(super) const STOPPING: Duration = Duration::from_secs(2);
/// The grace period of an app whose check sets none.
const GRACE: Duration = Duration::from_secs(2);

/// An app with one subscription, on the name of a rig.
pub(super) struct Service {
    running: Running,
    name: String,
    grace: Duration,
    deadline: Duration,
}

impl Service {
    /// Starts one, with a connection of its own, as another process has it.
    pub(super) async fn start<H: Harness>(
        rig: &Rig<'_, H>,
        handler: impl Subscriber<()>,
        set: impl FnOnce(&mut Subscription<H::Broker>),
    ) -> Result<Self, Violation> {
        Self::with_grace(rig, GRACE, handler, set).await
    }

    /// As [`start`](Self::start), with a grace period of the check's own.
    pub(super) async fn with_grace<H: Harness>(
        rig: &Rig<'_, H>,
        grace: Duration,
        handler: impl Subscriber<()>,
        set: impl FnOnce(&mut Subscription<H::Broker>),
    ) -> Result<Self, Violation> {
        let broker = rig.harness.broker();
        let source = rig.source_for(&broker);
        let app = RustStream::new(AppInfo::new("conformance", env!("CARGO_PKG_VERSION")))
            .shutdown_grace(grace)
            .with_broker(broker, |broker| set(broker.include(handler).source(source)))
            .build();
        let deadline = rig.deadline();
        Ok(Self {
            running: within(deadline, "the start of an app", app.start()).await?,
            name: rig.name.clone(),
            grace,
            deadline,
        })
    }

    pub(super) fn handle(&self) -> AppHandle {
        self.running.handle()
    }

    /// How its subscription fares.
    pub(super) fn health(&self) -> Result<SubscriptionHealth, Violation> {
        let health = self.running.health();
        let ours = health.subscription(&self.name).cloned();
        ours.ok_or_else(|| Violation::new(format!("the health of the app says nothing of {}", self.name)))
    }

    /// Waits until its subscription fares as `wanted`; `what` says how that is.
    pub(super) async fn fares(
        &self,
        what: &str,
        wanted: impl Fn(&SubscriptionHealth) -> bool,
    ) -> Result<(), Violation> {
        let end = Instant::now() + self.deadline;
        loop {
            let health = self.health()?;
            if wanted(&health) {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "for {:?} the subscription was never {what}: {health:?}",
                self.deadline
            );
            sleep(LOOK).await;
        }
    }

    /// Shuts it down, and expects that it ends within its grace period; answers how long that took.
    pub(super) async fn stop(self) -> Result<Duration, Violation> {
        let began = Instant::now();
        let limit = self.grace + STOPPING;
        within(limit, "the shutdown of an app", self.running.shutdown()).await?;
        Ok(began.elapsed())
    }

    /// Ends it where it is, as a crash of its process would.
    pub(super) async fn kill(self) {
        self.running.kill().await;
    }
}

//! What an app runs beside its subscriptions: relays, jobs, anything that works as long as the app does.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{AppHandle, HookResult};
use crate::handler::panic_text;
use crate::policy::Backoff;
use crate::transport::hide_secrets;

/// A service that an app runs beside its subscriptions, as long as it runs: the relay of an outbox, a job that prunes a table.
///
/// It is put on an app by [`AppBuilder::background`](super::AppBuilder::background). Its contract:
///
/// - It starts when all subscriptions are open, before the hooks `after_startup`, so it may publish at once.
/// - One that fails or panics is run again, after a backoff of half a second to half a minute, for as long as the app runs. Meanwhile
///   the [health](super::Health) shows it as failing, with the reason. One that ends with `Ok` has ended for good.
/// - At a shutdown it is told to stop ([`BackgroundContext::stopping`]) when the last handler has ended, so that it can finish what
///   those left to it; publishers work until it has ended. What is left of the grace period is its own; then it is dropped where it is.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::app::{Background, BackgroundContext, HookResult};
/// use ruststream::prelude::*;
///
/// /// Tells every minute that the shop is open.
/// struct Herald;
///
/// impl Background for Herald {
///     fn name(&self) -> String {
///         "herald".to_owned()
///     }
///
///     async fn run(&self, context: &BackgroundContext) -> HookResult {
///         while !context.stops_within(Duration::from_secs(60)).await {
///             context.app().publisher().publish("news", "the shop is open").await?;
///         }
///         Ok(())
///     }
/// }
///
/// let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |_| {})
///     .background(Herald)
///     .build();
/// # app.check().unwrap();
/// ```
pub trait Background: Send + Sync + 'static {
    /// What it is called, in logs and in the [health](super::Health).
    fn name(&self) -> String;

    /// Works until it is told to stop.
    ///
    /// # Errors
    ///
    /// What it cannot go on with: it is run again after a backoff. What it can wait for, it waits for itself, and
    /// [tells](BackgroundContext::failing).
    ///
    /// # Cancel safety
    ///
    /// It is dropped at any await point when the grace period of a shutdown has passed.
    fn run(&self, context: &BackgroundContext) -> impl Future<Output = HookResult> + Send;

    /// Completes when there is nothing to be done by it now. A test that waits until an app has
    /// settled waits for this; nothing else does.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    fn caught_up(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// What a [`Background`] service is given by its app.
pub struct BackgroundContext {
    app: AppHandle,
    stop: CancellationToken,
    ends: Arc<OnceLock<Instant>>,
    fares: Arc<Fares>,
}

impl BackgroundContext {
    /// The app: its publishers, its health.
    pub fn app(&self) -> &AppHandle {
        &self.app
    }

    /// Completes when the service is to stop: no handler runs any more.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// True when the service is to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits for so long, or until the service is to stop; true if it is.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn stops_within(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.stopping()).await.is_ok()
    }

    /// Tells that the service cannot do its work for now, and why: the health shows it until it is [`working`](Self::working).
    pub fn failing(&self, reason: impl Into<String>) {
        self.fares.set(Some(hide_secrets(reason.into())));
    }

    /// Tells that the service does its work.
    pub fn working(&self) {
        self.fares.set(None);
    }

    /// How long the service has to end, once it is to stop; `None` before. When that has passed it is dropped where it is.
    pub fn time_left(&self) -> Option<Duration> {
        let left = |end: &Instant| end.saturating_duration_since(Instant::now());
        self.ends.get().map(left)
    }
}

impl std::fmt::Debug for BackgroundContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackgroundContext")
            .field("stopping", &self.is_stopping())
            .finish_non_exhaustive()
    }
}

/// How one background service fares.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BackgroundHealth {
    /// What it is called.
    pub name: String,
    /// What it does.
    pub state: BackgroundState,
    /// What is wrong, where something is.
    pub reason: Option<String>,
    /// Since when it is wrong.
    pub since: Option<SystemTime>,
}

/// What a background service does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackgroundState {
    /// It works.
    Running,
    /// It cannot do its work, and tries again.
    Failing,
    /// It has ended.
    Ended,
}

/// What is known of one service, for the health.
pub(super) struct Fares {
    name: String,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    ended: bool,
    problem: Option<(String, SystemTime)>,
}

impl Fares {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, reason: Option<String>) {
        let mut now = self.now();
        now.problem = match (reason, now.problem.take()) {
            (None, _) => None,
            (Some(reason), Some((_, since))) => Some((reason, since)),
            (Some(reason), None) => Some((reason, SystemTime::now())),
        };
    }

    pub(super) fn health(&self) -> BackgroundHealth {
        let now = self.now();
        BackgroundHealth {
            name: self.name.clone(),
            state: match (now.ended, &now.problem) {
                (true, _) => BackgroundState::Ended,
                (false, Some(_)) => BackgroundState::Failing,
                (false, None) => BackgroundState::Running,
            },
            reason: now.problem.as_ref().map(|(reason, _)| reason.clone()),
            since: now.problem.as_ref().map(|(_, since)| *since),
        }
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// [`Background`] behind `dyn`.
pub(super) trait Erased: Send + Sync {
    fn name(&self) -> String;
    fn run<'a>(&'a self, context: &'a BackgroundContext) -> BoxFuture<'a, HookResult>;
    #[cfg(feature = "testing")]
    fn caught_up(&self) -> BoxFuture<'_, ()>;
}

impl<B: Background> Erased for B {
    fn name(&self) -> String {
        Background::name(self)
    }

    fn run<'a>(&'a self, context: &'a BackgroundContext) -> BoxFuture<'a, HookResult> {
        Box::pin(Background::run(self, context))
    }

    #[cfg(feature = "testing")]
    fn caught_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(Background::caught_up(self))
    }
}

/// The services of a running app.
pub(super) struct Services {
    known: Vec<(Arc<dyn Erased>, Arc<Fares>)>,
    stop: CancellationToken,
    ends: Arc<OnceLock<Instant>>,
}

impl Services {
    pub(super) fn new(services: Vec<Arc<dyn Erased>>) -> Self {
        let fares = |service: Arc<dyn Erased>| {
            let fares = Fares {
                name: service.name(),
                now: Mutex::default(),
            };
            (service, Arc::new(fares))
        };
        Self {
            known: services.into_iter().map(fares).collect(),
            stop: CancellationToken::new(),
            ends: Arc::default(),
        }
    }

    /// Runs all of them, each in a task of its own.
    pub(super) fn start(&self, app: &AppHandle) -> tokio::task::JoinSet<()> {
        let mut tasks = tokio::task::JoinSet::new();
        for (service, fares) in &self.known {
            let context = BackgroundContext {
                app: app.clone(),
                stop: self.stop.clone(),
                ends: self.ends.clone(),
                fares: fares.clone(),
            };
            let service = service.clone();
            tasks.spawn(async move {
                run(&*service, &context).await;
                context.fares.now().ended = true;
            });
        }
        tasks
    }

    /// Tells all of them to stop, and until when.
    pub(super) fn stop(&self, until: Instant) {
        let _ = self.ends.set(until);
        self.stop.cancel();
    }

    pub(super) fn health(&self) -> Vec<BackgroundHealth> {
        self.known.iter().map(|(_, fares)| fares.health()).collect()
    }

    /// Waits until none of those that work has anything to do now.
    #[cfg(feature = "testing")]
    pub(super) async fn caught_up(&self) {
        for (service, fares) in &self.known {
            if !fares.now().ended {
                service.caught_up().await;
            }
        }
    }
}

/// Waits until those services have ended, or the time has come, and drops the rest.
pub(super) async fn finish(mut tasks: tokio::task::JoinSet<()>, until: Instant) {
    let ending = async { while tasks.join_next().await.is_some() {} };
    if timeout_at(until, ending).await.is_err() {
        tracing::warn!("a background service did not end within the grace period; it is dropped where it is");
        tasks.shutdown().await;
    }
}

async fn run(service: &dyn Erased, context: &BackgroundContext) {
    let backoff = Backoff::exponential(Duration::from_millis(500)).cap(Duration::from_secs(30));
    let mut failures = 0_u32;
    loop {
        let began = Instant::now();
        let mut running = pin!(service.run(context));
        let ended = poll_fn(|cx| {
            catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)))
                .unwrap_or_else(|panic| Poll::Ready(Err(format!("it panicked: {}", panic_text(panic)).into())))
        });
        let Err(error) = ended.await else { return };
        // One that has worked for a while begins anew.
        failures = if began.elapsed() > Duration::from_mins(1) {
            1
        } else {
            failures.saturating_add(1)
        };
        let wait = backoff.ceiling(failures) / 2 + backoff.delay(failures, fastrand::f64()) / 2;
        let text = hide_secrets(error.to_string());
        tracing::error!(
            service = service.name(),
            error = text,
            ?wait,
            "a background service failed; it is run again"
        );
        context.failing(text);
        if context.stops_within(wait).await {
            return;
        }
    }
}

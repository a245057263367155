//! Putting an app together.

use std::sync::Arc;
use std::time::Duration;

use super::background::{Background, Erased};
use super::broker::{BrokerEntry, Mounts};
use super::hooks::{self, HookResult, Hooks};
use super::report::Report;
use super::{AppError, AppHandle, AppInfo, BrokerScope, Running};
use crate::codec::Codec;
use crate::publish::PublishLayers;
use crate::transport::Broker;

/// An app, put together and ready to start.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[subscriber("greetings")]
/// async fn greet(name: String) {
///     println!("hello, {name}");
/// }
///
/// # async fn example() -> Result<(), ruststream::app::AppError> {
/// let running = RustStream::new(AppInfo::new("greeter", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.include(greet).workers(4);
///     })
///     .start()
///     .await?;
/// running.publisher().publish("greetings", "world").await.expect("a memory queue has room");
/// running.shutdown().await?;
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[must_use = "an app does nothing until it is started"]
pub struct RustStream {
    pub(super) info: AppInfo,
    pub(super) brokers: Vec<Box<dyn BrokerEntry>>,
    pub(super) background: Vec<Arc<dyn Erased>>,
    pub(super) hooks: Hooks,
    pub(super) options: Options,
}

/// What holds for a whole app.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) shutdown_grace: Duration,
    pub(super) fail_fast: bool,
    pub(super) codec: Codec,
}

impl RustStream {
    /// Begins an app. Give it its state, then its brokers, then [`start`](AppBuilder::start) or [`run`](AppBuilder::run) it.
    #[expect(
        clippy::new_ret_no_self,
        reason = "the state's type is known only when the builder is done"
    )]
    pub fn new(info: AppInfo) -> AppBuilder<()> {
        let options = Options {
            shutdown_grace: Duration::from_secs(30),
            fail_fast: false,
            codec: Codec::default(),
        };
        let app = Self {
            info,
            brokers: Vec::new(),
            background: Vec::new(),
            hooks: Hooks::default(),
            options,
        };
        AppBuilder {
            state: Arc::new(()),
            app,
        }
    }

    /// What the app is called.
    pub fn info(&self) -> &AppInfo {
        &self.info
    }

    /// Says whether the app is put together well, without connecting anywhere; answers a line for each subscription.
    ///
    /// # Errors
    ///
    /// All that is wrong, each with its fix.
    pub fn check(&self) -> Result<Vec<String>, AppError> {
        let mut problems = self.problems();
        problems.extend(self.brokers.iter().filter_map(|broker| broker.check_broker()));
        AppError::of_wiring(&problems)?;
        Ok(self.examine().lines)
    }

    /// What is wrong with the wiring. What is wrong with a broker itself is left to its connect: a hook may mend it before.
    pub(super) fn problems(&self) -> Vec<String> {
        let none = self.brokers.is_empty();
        let none = none.then(|| "the app has no broker: add one with `.with_broker(..)`".to_owned());
        let problems = self.brokers.iter().flat_map(|broker| broker.problems());
        none.into_iter().chain(problems).collect()
    }

    /// What the app reads and writes.
    pub(super) fn examine(&self) -> Report {
        let mut report = Report::default();
        self.brokers.iter().for_each(|broker| broker.describe(&mut report));
        report
    }

    /// Starts the app: runs its hooks, connects its brokers, opens its subscriptions. It then works in the background.
    ///
    /// An absent broker is waited for, with backoff, unless the app [fails fast](AppBuilder::fail_fast).
    ///
    /// # Errors
    ///
    /// Where the app is put together wrongly, a hook fails, or a broker refuses for good.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, what was started is stopped again.
    pub async fn start(self) -> Result<Running, AppError> {
        super::start::start(self).await
    }

    /// Runs the app until SIGTERM or SIGINT, drains it, and returns. A second signal exits the process at once; one within 100 ms
    /// of the first is taken for its echo. So does the end of the grace period, where handlers block all threads for good.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), and where every subscription has failed for good.
    pub async fn run(self) -> Result<(), AppError> {
        super::start::run(self).await
    }
}

impl std::fmt::Debug for RustStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RustStream")
            .field("info", &self.info)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// An app being put together; `S` is its state.
#[must_use = "an app does nothing until it is started"]
pub struct AppBuilder<S> {
    state: Arc<S>,
    app: RustStream,
}

impl AppBuilder<()> {
    /// Gives the app its state, which handlers take by `State<T>`.
    pub fn state<S: Send + Sync + 'static>(self, state: S) -> AppBuilder<S> {
        AppBuilder {
            state: Arc::new(state),
            app: self.app,
        }
    }
}

impl<S: Send + Sync + 'static> AppBuilder<S> {
    /// Adds a broker and what is mounted on it.
    pub fn with_broker<B: Broker>(mut self, broker: B, mount: impl FnOnce(&mut BrokerScope<'_, B, S>)) -> Self {
        let mut mounts = Mounts {
            broker,
            subscriptions: Vec::new(),
            publish_layers: PublishLayers::default(),
        };
        mount(&mut BrokerScope::new(self.state.clone(), &mut mounts));
        self.app.brokers.push(Box::new(mounts));
        self
    }

    /// Sets how long work in hand may take at a shutdown before it is released. 30 s where nothing is set.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.app.options.shutdown_grace = grace;
        self
    }

    /// Sets the codec that reads and writes messages wherever no scope, subscription or publisher has its own. JSON where nothing
    /// is set.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.app.options.codec = codec;
        self
    }

    /// Makes the start fail where a broker is absent, instead of waiting for it.
    pub fn fail_fast(mut self) -> Self {
        self.app.options.fail_fast = true;
        self
    }

    /// Adds a service that runs beside the subscriptions; see [`Background`].
    pub fn background(mut self, service: impl Background) -> Self {
        self.app.background.push(Arc::new(service));
        self
    }

    /// Adds a hook that runs before anything is connected.
    pub fn on_startup<F, Fut>(mut self, run: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = HookResult> + Send + 'static,
    {
        self.app.hooks.on_startup.push(hooks::hook(|()| run()));
        self
    }

    /// Adds a hook that runs when all subscriptions are open.
    ///
    /// ```
    /// # use ruststream::prelude::*;
    /// let app = RustStream::new(AppInfo::new("shop", "1.0.0")).after_startup(async |app| {
    ///     app.publisher().publish("opened", &"the shop is open").await?;
    ///     Ok(())
    /// });
    /// ```
    pub fn after_startup<F, Fut>(mut self, run: F) -> Self
    where
        F: FnOnce(AppHandle) -> Fut + Send + 'static,
        Fut: Future<Output = HookResult> + Send + 'static,
    {
        self.app.hooks.after_startup.push(hooks::hook(run));
        self
    }

    /// Adds a hook that runs when the shutdown begins, while everything is still connected.
    pub fn on_shutdown<F, Fut>(mut self, run: F) -> Self
    where
        F: FnOnce(AppHandle) -> Fut + Send + 'static,
        Fut: Future<Output = HookResult> + Send + 'static,
    {
        self.app.hooks.on_shutdown.push(hooks::hook(run));
        self
    }

    /// Adds a hook that runs when all is drained and closed.
    pub fn after_shutdown<F, Fut>(mut self, run: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = HookResult> + Send + 'static,
    {
        self.app.hooks.after_shutdown.push(hooks::hook(|()| run()));
        self
    }

    /// The app, put together.
    pub fn build(self) -> RustStream {
        self.app
    }

    /// As [`RustStream::start`].
    ///
    /// # Errors
    ///
    /// As [`RustStream::start`].
    pub async fn start(self) -> Result<Running, AppError> {
        self.build().start().await
    }

    /// As [`RustStream::run`].
    ///
    /// # Errors
    ///
    /// As [`RustStream::run`].
    pub async fn run(self) -> Result<(), AppError> {
        self.build().run().await
    }
}

impl<S> From<AppBuilder<S>> for RustStream {
    fn from(builder: AppBuilder<S>) -> Self {
        builder.app
    }
}

impl<S> std::fmt::Debug for AppBuilder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.app.fmt(f)
    }
}

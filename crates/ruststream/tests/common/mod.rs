//! What the behaviour tests share: builders and signals, no assertions.
#![allow(dead_code, reason = "each test program uses its own part of it")]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod reduced;

use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::app::{AppBuilder, BrokerScope, Running, Subscription, SubscriptionHealth};
use ruststream::handler::{
    BatchOutcome, Batched, Call, Definition, Handler, IntoBatchOutcome, IntoOutcome, Layers, Mounting, Outcome, Single,
    Subscriber,
};
use ruststream::memory::MemoryBroker;
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::prelude::*;
use ruststream::transport::{Broker, Publish};
use tokio::sync::{Notify, Semaphore};

#[allow(unused_imports, reason = "each test program uses its own part of it")]
pub(crate) use reduced::{Fault, Half, Reduced};

/// Longer than any wait of these tests, on the tests' own clock: what never happens fails at once where the clock is paused.
const NEVER: Duration = Duration::from_hours(24);

/// Waits for what must happen.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(NEVER, work)
        .await
        .expect("it happens, however late")
}

/// An app of one broker, started.
pub(crate) async fn start<B: Broker>(broker: B, mount: impl FnOnce(&mut BrokerScope<'_, B, ()>)) -> Running {
    app(broker, mount).start().await.unwrap()
}

/// An app of one broker, still to be set up.
pub(crate) fn app<B: Broker>(broker: B, mount: impl FnOnce(&mut BrokerScope<'_, B, ()>)) -> AppBuilder<()> {
    RustStream::new(AppInfo::new("test", "1.0.0")).with_broker(broker, mount)
}

/// An app with a state and one handler, started.
pub(crate) async fn start_one<S, H>(
    broker: &MemoryBroker,
    state: &S,
    handler: H,
    set: impl FnOnce(&mut Subscription<MemoryBroker>),
) -> Running
where
    S: Clone + Send + Sync + 'static,
    H: Subscriber<S>,
{
    RustStream::new(AppInfo::new("test", "1.0.0"))
        .state(state.clone())
        .with_broker(broker.clone(), |scope| set(scope.include(handler)))
        .start()
        .await
        .unwrap()
}

/// Publishes these payloads, in order.
pub(crate) async fn publish<P: AsRef<[u8]>>(broker: &MemoryBroker, name: &str, payloads: impl IntoIterator<Item = P>) {
    let payloads: Vec<P> = payloads.into_iter().collect();
    let messages: Vec<_> = payloads
        .iter()
        .map(|payload| Outgoing::new(name, payload.as_ref()))
        .collect();
    broker.publisher().publish(&messages).await.unwrap();
}

/// Publishes numbers as JSON, in order.
pub(crate) async fn publish_ids(broker: &MemoryBroker, name: &str, ids: impl IntoIterator<Item = u64>) {
    publish(broker, name, ids.into_iter().map(|id| id.to_string())).await;
}

/// Publishes one message with headers.
pub(crate) async fn publish_with(broker: &MemoryBroker, name: &str, payload: &[u8], headers: &HeaderMap) {
    let message = Outgoing::new(name, payload).with_headers(headers);
    broker.publisher().publish(&[message]).await.unwrap();
}

/// Publishes one message with a key.
pub(crate) async fn publish_keyed(broker: &MemoryBroker, name: &str, key: &str, payload: &str) {
    let message = Outgoing::new(name, payload.as_bytes()).with_key(key.as_bytes());
    broker.publisher().publish(&[message]).await.unwrap();
}

/// How the only subscription of an app fares.
pub(crate) fn health(running: &Running) -> SubscriptionHealth {
    running.health().subscriptions.first().unwrap().clone()
}

/// What the app's code did, in order; a test awaits its growth.
pub(crate) struct Record<T> {
    inner: Arc<(Mutex<Vec<T>>, Notify)>,
}

impl<T> Clone for Record<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<T> Default for Record<T> {
    fn default() -> Self {
        Self {
            inner: Arc::new((Mutex::new(Vec::new()), Notify::new())),
        }
    }
}

impl<T: Clone + Debug> Record<T> {
    pub(crate) fn add(&self, entry: T) {
        self.inner.0.lock().unwrap().push(entry);
        self.inner.1.notify_waiters();
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.inner.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.0.lock().unwrap().len()
    }

    /// Waits until there are `count` entries, and answers all there are.
    pub(crate) async fn reaches(&self, count: usize) -> Vec<T> {
        within(async {
            loop {
                let grown = self.inner.1.notified();
                let all = self.all();
                if all.len() >= count {
                    return all;
                }
                grown.await;
            }
        })
        .await
    }
}

/// Where handlers wait until the test lets them go on, each pass letting one go.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets this many go on, now or later.
    pub(crate) fn let_go(&self, count: usize) {
        self.0.add_permits(count);
    }

    pub(crate) async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}

/// What a [`handler`] is given.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) text: String,
    pub(crate) key: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) token: CancellationToken,
}

impl Given {
    fn of(call: &Call<'_, ()>) -> Self {
        let incoming = call.incoming();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            text: text(incoming.payload()),
            key: incoming.key().map(text),
            attempt: incoming.attempt(),
            token: call.cancellation(),
        }
    }

    /// The payload as a number.
    pub(crate) fn id(&self) -> u64 {
        self.text.parse().unwrap()
    }
}

/// A handler made of a closure, for tests whose subject is not the handler's own form.
pub(crate) fn handler<F, Fut>(name: &'static str, run: F) -> FromClosure<F>
where
    F: Fn(Given) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoOutcome + Send,
{
    FromClosure { name, run }
}

pub(crate) struct FromClosure<F> {
    name: &'static str,
    run: F,
}

impl<F, Fut> Single<()> for FromClosure<F>
where
    F: Fn(Given) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoOutcome + Send,
{
    async fn call<'a>(&'a self, call: Call<'a, ()>) -> Outcome {
        let given = Given::of(&call);
        (self.run)(given).await.into_outcome()
    }
}

impl<F, Fut> Subscriber<()> for FromClosure<F>
where
    F: Fn(Given) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoOutcome + Send,
{
    fn definition(&self) -> Definition {
        Definition::new("closure", self.name)
    }

    fn into_handler<L: Layers>(self, mounting: Mounting<(), L>) -> Handler {
        mounting.single(self)
    }
}

/// A handler of batches made of a closure.
pub(crate) fn batch_handler<F, Fut>(name: &'static str, run: F) -> FromBatchClosure<F>
where
    F: Fn(Vec<Given>) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoBatchOutcome + Send,
{
    FromBatchClosure { name, run }
}

pub(crate) struct FromBatchClosure<F> {
    name: &'static str,
    run: F,
}

impl<F, Fut> Batched<()> for FromBatchClosure<F>
where
    F: Fn(Vec<Given>) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoBatchOutcome + Send,
{
    async fn call<'a>(&'a self, calls: &'a [Call<'a, ()>]) -> BatchOutcome {
        let given = calls.iter().map(Given::of).collect();
        (self.run)(given).await.into_batch_outcome()
    }
}

impl<F, Fut> Subscriber<()> for FromBatchClosure<F>
where
    F: Fn(Vec<Given>) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoBatchOutcome + Send,
{
    fn definition(&self) -> Definition {
        Definition::new("closure", self.name).with_batch()
    }

    fn into_handler<L: Layers>(self, mounting: Mounting<(), L>) -> Handler {
        mounting.batched(self)
    }
}

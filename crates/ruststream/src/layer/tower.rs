//! A stack of tower's layers around handlers.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::sync::{Mutex, oneshot};
use tower_service::Service;

use crate::handler::{BatchOutcome, Batched, Call, Failure, Layer, Outcome, Single};

type BoxError = Box<dyn Error + Send + Sync>;

/// Puts a stack of [tower](https://docs.rs/tower)'s layers around handlers: time-outs, limits of concurrency and of rate, load shedding,
/// and those of one's own that look at when a call begins and ends. Feature `tower`.
///
/// The stack is one service for all the handlers under it, and need not be `Clone`: what it limits, it limits for all of them together. A
/// batch is one call. What the stack does holds for the call of the handler:
///
/// - a call begins when the stack lets it; meanwhile its message is in hand, and its subscription's time-out runs;
/// - an error of the stack is a failure of the call, retried by the policy of its subscription
///   ([`Failure::inspect`] shows it as a `Box<dyn Error + Send + Sync>`); a handler in the middle of its call is dropped;
/// - what the handler says is no error to the stack, so its layers cannot tell a failed call from another.
///
/// What does not fit: layers that call more than once (`tower::retry`, `tower::hedge`) have nothing to clone, and pass each call on once:
/// retries are the [policy](crate::policy::Retry) of a subscription, whose delays survive a crash. Layers that change requests or responses
/// find nothing to change: a [`Layer`] does.
///
/// Without a need for tower, [`workers`](crate::app::Subscription::workers), [`timeout`](crate::app::Subscription::timeout) and
/// [`ConcurrencyLimit`](super::ConcurrencyLimit) cost less.
///
/// # Examples
///
/// ```
/// use ruststream::layer::Tower;
/// use ruststream::prelude::*;
/// use tower::ServiceBuilder;
///
/// #[subscriber("invoices")]
/// async fn charge(invoice: u64) {}
///
/// // The bank takes 100 calls a second, and no more than 8 at a time.
/// let bank = ServiceBuilder::new().rate_limit(100, Duration::from_secs(1)).concurrency_limit(8);
/// let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.layer(Tower::new(bank), |broker| {
///             broker.include(charge).workers(64);
///         });
///     })
///     .build();
/// # app.check().unwrap();
/// ```
pub struct Tower<T> {
    /// Made at the first call: some layers, a rate limit among them, can be made within a tokio runtime only, and an app is put
    /// together before there is one.
    service: OnceLock<Mutex<T>>,
    make: Box<dyn Fn() -> T + Send + Sync>,
}

impl<T> Tower<T>
where
    T: Service<HandlerCall, Response = (), Error: Into<BoxError>, Future: Send> + Send + 'static,
{
    /// The stack that `layer` makes: one layer of tower, or a `tower::ServiceBuilder` with several.
    pub fn new(layer: impl tower_layer::Layer<HandlerService, Service = T> + Send + Sync + 'static) -> Self {
        Self {
            service: OnceLock::new(),
            make: Box::new(move || layer.layer(HandlerService(()))),
        }
    }

    /// Does `work` when the stack lets it begin, as long as the stack lets it go on.
    async fn around<O>(&self, source: &Arc<str>, work: impl Future<Output = O>) -> Result<O, BoxError> {
        let (begin, mut may_begin) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let call = HandlerCall {
            source: source.clone(),
            begin,
            ended,
        };
        let response = {
            let service = self.service.get_or_init(|| Mutex::new((self.make)()));
            let mut service = service.lock().await;
            poll_fn(|context| service.poll_ready(context))
                .await
                .map_err(Into::into)?;
            service.call(call)
        };
        let mut response = pin!(async { response.await.map_err(Into::into) });
        tokio::select! {
            biased;
            answer = &mut response => return Err(uncalled(answer)),
            told = &mut may_begin => if told.is_err() {
                return Err(uncalled(response.await));
            }
        }
        let outcome = tokio::select! {
            biased;
            outcome = work => outcome,
            answer = &mut response => return Err(uncalled(answer)),
        };
        // A layer that has gone meanwhile learns of the end by its own ways. What the handler said holds, whatever the layers say of it.
        let _ = end.send(());
        let _ = response.await;
        Ok(outcome)
    }
}

/// Why a call has no outcome of its handler.
#[cold]
fn uncalled(answer: Result<(), BoxError>) -> BoxError {
    match answer {
        Err(error) => error,
        Ok(()) => "a layer of tower answered in the place of the handler".into(),
    }
}

fn failed(error: BoxError) -> Outcome {
    Outcome::Failed(Box::new(Failure::error(error)))
}

impl<T> Layer for Tower<T>
where
    T: Service<HandlerCall, Response = (), Error: Into<BoxError>, Future: Send> + Send + 'static,
{
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        let source = &call.in_hand.worker.source;
        self.around(source, next.call(call)).await.unwrap_or_else(failed)
    }

    async fn call_batch<'a, S: Send + Sync + 'static>(
        &'a self,
        calls: &'a [Call<'a, S>],
        next: &'a impl Batched<S>,
    ) -> BatchOutcome {
        // A batch has a message.
        let source = &calls[0].in_hand.worker.source;
        let outcome = self.around(source, next.call(calls)).await;
        outcome.unwrap_or_else(|error| BatchOutcome::All(failed(error)))
    }
}

impl<T> fmt::Debug for Tower<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tower").finish_non_exhaustive()
    }
}

/// One call of a handler, as the layers of a [`Tower`] see it.
#[derive(Debug)]
pub struct HandlerCall {
    source: Arc<str>,
    begin: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl HandlerCall {
    /// The name of the subscription.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// The innermost service of a [`Tower`]: it lets a call begin, and ends with it.
#[derive(Debug, Clone, Copy)]
pub struct HandlerService(());

impl Service<HandlerCall> for HandlerService {
    type Response = ();
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: HandlerCall) -> Self::Future {
        Box::pin(async {
            // Whoever made the call may be gone: it was dropped, or its time was up.
            if call.begin.send(()).is_ok() {
                let _ = call.ended.await;
            }
            Ok(())
        })
    }
}

//! Layers: what is done around every call of the handlers they are put on.

use std::sync::Arc;

use super::{BatchOutcome, Batched, Call, Handler, Outcome, Scope, Single};

/// One layer around handlers: it sees each call before the handler and its outcome after, and may answer in its place.
///
/// A layer is put on handlers by [`BrokerScope::layer`](crate::app::BrokerScope::layer). Of two, the outer sees the call first and
/// the outcome last. Extraction, decoding and the handler itself are inside all of them; retries, dead letters and replies
/// are decided outside, from the outcome that comes out at the end. A panic passes through all layers.
///
/// # Examples
///
/// ```
/// use ruststream::handler::{Call, Layer, Outcome, Single};
///
/// /// Counts calls that failed.
/// #[derive(Default)]
/// struct Failures(std::sync::atomic::AtomicU64);
///
/// impl Layer for Failures {
///     async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
///         let outcome = next.call(call).await;
///         if matches!(outcome, Outcome::Failed(_)) {
///             self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         }
///         outcome
///     }
/// }
/// ```
pub trait Layer: Send + Sync + 'static {
    /// Handles one message, usually by calling `next`.
    ///
    /// # Cancel safety
    ///
    /// The call may be dropped at any await point when its time is up.
    fn call<'a, S: Send + Sync + 'static>(
        &'a self,
        call: Call<'a, S>,
        next: &'a impl Single<S>,
    ) -> impl Future<Output = Outcome> + Send;

    /// Handles one batch, usually by calling `next`. Passes it on as it is where nothing else is written.
    ///
    /// # Cancel safety
    ///
    /// As [`call`](Self::call).
    fn call_batch<'a, S: Send + Sync + 'static>(
        &'a self,
        calls: &'a [Call<'a, S>],
        next: &'a impl Batched<S>,
    ) -> impl Future<Output = BatchOutcome> + Send {
        next.call(calls)
    }
}

/// The layers of a scope: `()` for none, or a [`Stack`].
pub trait Layers: Clone + Send + Sync + 'static {
    /// Erases a handler of single messages, with these layers around it.
    fn single<S: Send + Sync + 'static>(self, handler: impl Single<S>, scope: Scope<S>) -> Handler;

    /// Erases a handler of batches, with these layers around it.
    fn batched<S: Send + Sync + 'static>(self, handler: impl Batched<S>, scope: Scope<S>) -> Handler;
}

impl Layers for () {
    fn single<S: Send + Sync + 'static>(self, handler: impl Single<S>, scope: Scope<S>) -> Handler {
        Handler::single(handler, scope)
    }

    fn batched<S: Send + Sync + 'static>(self, handler: impl Batched<S>, scope: Scope<S>) -> Handler {
        Handler::batched(handler, scope)
    }
}

/// A layer inside others.
#[derive(Debug)]
pub struct Stack<O, L> {
    outer: O,
    layer: Arc<L>,
}

impl<O, L> Stack<O, L> {
    pub(crate) fn new(outer: O, layer: L) -> Self {
        Self {
            outer,
            layer: Arc::new(layer),
        }
    }
}

impl<O: Clone, L> Clone for Stack<O, L> {
    fn clone(&self) -> Self {
        Self {
            outer: self.outer.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<O: Layers, L: Layer> Layers for Stack<O, L> {
    fn single<S: Send + Sync + 'static>(self, handler: impl Single<S>, scope: Scope<S>) -> Handler {
        self.outer.single(
            Layered {
                layer: self.layer,
                handler,
            },
            scope,
        )
    }

    fn batched<S: Send + Sync + 'static>(self, handler: impl Batched<S>, scope: Scope<S>) -> Handler {
        self.outer.batched(
            Layered {
                layer: self.layer,
                handler,
            },
            scope,
        )
    }
}

/// A handler inside a layer.
struct Layered<L, H> {
    layer: Arc<L>,
    handler: H,
}

impl<S: Send + Sync + 'static, L: Layer, H: Single<S>> Single<S> for Layered<L, H> {
    fn call<'a>(&'a self, call: Call<'a, S>) -> impl Future<Output = Outcome> + Send + 'a {
        self.layer.call(call, &self.handler)
    }
}

impl<S: Send + Sync + 'static, L: Layer, H: Batched<S>> Batched<S> for Layered<L, H> {
    fn call<'a>(&'a self, calls: &'a [Call<'a, S>]) -> impl Future<Output = BatchOutcome> + Send + 'a {
        self.layer.call_batch(calls, &self.handler)
    }
}

/// What a handler is mounted with: its scope and the layers around it.
pub struct Mounting<S, L = ()> {
    pub(crate) scope: Scope<S>,
    pub(crate) layers: L,
}

impl<S: Send + Sync + 'static, L: Layers> Mounting<S, L> {
    /// Mounts a handler of single messages.
    pub fn single(self, handler: impl Single<S>) -> Handler {
        self.layers.single(handler, self.scope)
    }

    /// Mounts a handler of batches.
    pub fn batched(self, handler: impl Batched<S>) -> Handler {
        self.layers.batched(handler, self.scope)
    }
}

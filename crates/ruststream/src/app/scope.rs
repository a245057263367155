//! Mounting handlers on a broker.

use std::sync::Arc;
use std::time::Duration;

use super::broker::{Mounts, Opener, SourceChoice};
use crate::codec::Codec;
use crate::handler::{Included, Layer, Layers, Mounting, Scope, Stack};
use crate::policy::{OnUndecodable, OrderBy, Retry};
use crate::publish::{PublishLayer, Publisher};
use crate::runtime::{Batch, LONGEST, Settings};
use crate::transport::{Broker, Source};

/// A broker of an app, while handlers are mounted on it. `S` is the state they see, `L` the layers around them.
///
/// Scopes nest: [`layer`](Self::layer), [`prefix`](Self::prefix), [`codec`](Self::codec) and [`with_state`](Self::with_state) lend a scope within this one. A
/// function that takes a scope is a router:
///
/// ```
/// use ruststream::app::BrokerScope;
/// use ruststream::handler::Layers;
/// use ruststream::prelude::*;
/// use ruststream::transport::Broker;
///
/// #[subscriber("placed")]
/// async fn placed(order: u64) {}
///
/// fn orders<B: Broker, L: Layers>(scope: &mut BrokerScope<'_, B, (), L>) {
///     scope.include(placed);
/// }
///
/// let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| broker.prefix("orders.", orders))
///     .build();
/// assert!(app.check().unwrap()[0].contains("orders.placed"));
/// ```
pub struct BrokerScope<'m, B: Broker, S, L = ()> {
    state: Arc<S>,
    layers: L,
    prefix: String,
    codec: Option<Codec>,
    mounts: &'m mut Mounts<B>,
}

impl<'m, B: Broker, S: Send + Sync + 'static> BrokerScope<'m, B, S> {
    pub(super) fn new(state: Arc<S>, mounts: &'m mut Mounts<B>) -> Self {
        Self {
            state,
            layers: (),
            prefix: String::new(),
            codec: None,
            mounts,
        }
    }
}

impl<B: Broker, S: Send + Sync + 'static, L: Layers> BrokerScope<'_, B, S, L> {
    /// Mounts a handler. What is set on the answer holds for its subscription.
    pub fn include<H: Included<S>>(&mut self, handler: H) -> &mut Subscription<B> {
        let (state, layers) = (self.state.clone(), self.layers.clone());
        let definition = handler.definition();
        let make = Box::new(move |publisher: Publisher| {
            let scope = Scope { state, publisher };
            handler.into_handler(Mounting { scope, layers })
        });
        self.mounts.mount(&self.prefix, self.codec.clone(), definition, make)
    }

    /// Lends a scope whose handlers have `layer` around them, inside the layers of this scope.
    pub fn layer<N: Layer>(&mut self, layer: N, mount: impl FnOnce(&mut BrokerScope<'_, B, S, Stack<L, N>>)) {
        mount(&mut BrokerScope {
            state: self.state.clone(),
            layers: Stack::new(self.layers.clone(), layer),
            prefix: self.prefix.clone(),
            codec: self.codec.clone(),
            mounts: self.mounts,
        });
    }

    /// Puts a layer around all publishing of this app on this broker, in whichever scope it is called; inside those that are there.
    pub fn publish_layer(&mut self, layer: impl PublishLayer) {
        self.mounts.publish_layers.push(layer);
    }

    /// Lends a scope whose handlers subscribe to their name with `prefix` before it, behind the prefix of this scope.
    pub fn prefix(&mut self, prefix: &str, mount: impl FnOnce(&mut BrokerScope<'_, B, S, L>)) {
        mount(&mut BrokerScope {
            state: self.state.clone(),
            layers: self.layers.clone(),
            prefix: format!("{}{prefix}", self.prefix),
            codec: self.codec.clone(),
            mounts: self.mounts,
        });
    }

    /// Lends a scope whose handlers read and write by `codec`, instead of the app's or that of the scope around it.
    pub fn codec(&mut self, codec: Codec, mount: impl FnOnce(&mut BrokerScope<'_, B, S, L>)) {
        mount(&mut BrokerScope {
            state: self.state.clone(),
            layers: self.layers.clone(),
            prefix: self.prefix.clone(),
            codec: Some(codec),
            mounts: self.mounts,
        });
    }

    /// Lends a scope whose handlers see a state of their own, such as a part of this scope's.
    pub fn with_state<T: Send + Sync + 'static>(
        &mut self,
        state: impl FnOnce(&S) -> T,
        mount: impl FnOnce(&mut BrokerScope<'_, B, T, L>),
    ) {
        mount(&mut BrokerScope {
            state: Arc::new(state(&self.state)),
            layers: self.layers.clone(),
            prefix: self.prefix.clone(),
            codec: self.codec.clone(),
            mounts: self.mounts,
        });
    }
}

/// The settings of a subscription.
pub struct Subscription<B: Broker> {
    pub(super) definition: crate::handler::Definition,
    pub(super) source: SourceChoice<B>,
    pub(super) settings: Settings,
    pub(super) codec: Option<Codec>,
}

impl<B: Broker> Subscription<B> {
    /// Reads from this source, with settings of the transport's own, instead of the one that the handler names.
    pub fn source(&mut self, source: impl Source<Connection = B::Connection>) -> &mut Self {
        let opener: Box<dyn Opener<B::Connection>> = Box::new(source);
        self.source = SourceChoice::Given(opener);
        self
    }

    /// Reads and writes by `codec`: messages that do not say what they are, replies, and what the handler publishes.
    pub fn codec(&mut self, codec: Codec) -> &mut Self {
        self.codec = Some(codec);
        self
    }

    /// Sets how many messages are handled at a time. One where nothing is set, which keeps the subscription's order.
    pub fn workers(&mut self, workers: usize) -> &mut Self {
        self.settings.workers = workers;
        self
    }

    /// Sets how many messages make a batch, for a handler of batches. 64 where nothing is set.
    pub fn batch(&mut self, size: usize) -> &mut Self {
        self.settings.batch.get_or_insert_default().size = size;
        self
    }

    /// Sets how long the first message of a batch waits for others. 20 ms where nothing is set.
    pub fn batch_age(&mut self, age: Duration) -> &mut Self {
        self.settings.batch.get_or_insert_default().age = age.min(LONGEST);
        self
    }

    /// Fixes how many messages are fetched and not settled at a time. Where nothing is set, it follows the speed of the
    /// handler: about 50 ms of work are fetched ahead.
    pub fn prefetch(&mut self, messages: usize) -> &mut Self {
        self.settings.prefetch = Some(messages);
        self
    }

    /// Sets how often a message is tried, and how long to wait in between.
    pub fn retry(&mut self, retry: Retry) -> &mut Self {
        self.settings.retry.otherwise = retry;
        self
    }

    /// Sets another policy for errors of type `E`.
    pub fn retry_on<E: 'static>(&mut self, retry: Retry) -> &mut Self {
        self.settings.retry.on_type::<E>(retry);
        self
    }

    /// Sets another policy for those errors of type `E` that `choose` answers one for.
    ///
    /// What `choose` would grant is not known before an error: a message that ends its process each time, and so never shows
    /// one, is given up after 100 deliveries then, or after the attempts of the subscription's policy if those are more.
    pub fn retry_when<E: 'static>(
        &mut self,
        choose: impl Fn(&E) -> Option<Retry> + Send + Sync + 'static,
    ) -> &mut Self {
        self.settings.retry.on(choose);
        self
    }

    /// Publishes dead letters to `destination`: original bytes and headers, and headers that say why.
    pub fn dead_letter(&mut self, destination: impl Into<String>) -> &mut Self {
        self.settings.dead_letter = Some(destination.into().into());
        self
    }

    /// Sets how long one call may wait. None where nothing is set. A call past it is dropped and counts as failed.
    pub fn timeout(&mut self, limit: Duration) -> &mut Self {
        self.settings.timeout = Some(limit.min(LONGEST));
        self
    }

    /// Handles messages of one key one after the other, in their order, through retries too; other keys do not wait.
    pub fn ordered_by(&mut self, order: OrderBy) -> &mut Self {
        self.settings.ordered_by = Some(order);
        self
    }

    /// Sets what happens to a message that cannot be decoded. It becomes a dead letter where nothing is set.
    pub fn on_undecodable(&mut self, what: OnUndecodable) -> &mut Self {
        self.settings.on_undecodable = what;
        self
    }

    /// What is wrong with the settings, as a sentence that names the fix.
    pub(super) fn problem(&self) -> Option<String> {
        if let Some(batch) = self.settings.batch.filter(|_| !self.definition.batch) {
            let usual = Batch::default();
            let set = if batch.size == usual.size && batch.age != usual.age {
                ".batch_age(..)"
            } else {
                ".batch(..)"
            };
            return Some(format!(
                "`{set}` is set, but the handler takes one message: let its first parameter be `&[T]`"
            ));
        }
        self.dead_letter_problem().or_else(|| self.settings.problem())
    }

    fn dead_letter_problem(&self) -> Option<String> {
        let place = self.settings.dead_letter.as_deref()?;
        let reads = match &self.source {
            SourceChoice::ByName => &self.definition.name,
            SourceChoice::Given(opener) => opener.name(),
        };
        if place.is_empty() {
            return Some("`.dead_letter(\"\")` names no place: leave it out for the broker's own".to_owned());
        }
        (place == reads).then(|| {
            format!("`.dead_letter(\"{place}\")` is where it reads: its dead letters would come back to it without end; name another place")
        })
    }
}

impl<B: Broker> std::fmt::Debug for Subscription<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("definition", &self.definition)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<B: Broker, S, L> std::fmt::Debug for BrokerScope<'_, B, S, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrokerScope")
            .field("mounts", &self.mounts.subscriptions.len())
            .finish_non_exhaustive()
    }
}

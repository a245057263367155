//! Layers around publishing: what is done with every message that an app sends.

use std::pin::Pin;
use std::sync::Arc;

use super::Prepared;
use crate::transport::TransportError;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A layer around publishing: it sees every message that the app sends on a broker, may change it, and learns what became of it.
///
/// It is put on a broker by [`BrokerScope::publish_layer`](crate::app::BrokerScope::publish_layer), and holds for replies, for what handlers
/// publish by [`Out`](super::Out), for publishers and clients handed out by the app. Dead letters pass by it: they are the
/// bytes and headers that came. Of two layers, the one that was put on first sees a message first and its end last.
///
/// For a reply, [`before`](Self::before) is a part of the call: the subscription's time-out holds for it, and where it fails, the message
/// is tried again by its policy.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
/// use ruststream::publish::{Prepared, PublishLayer};
/// use ruststream::transport::TransportError;
///
/// /// Says which version of the service has sent a message.
/// struct Signed;
///
/// impl PublishLayer for Signed {
///     async fn before(&self, message: &mut Prepared) -> Result<(), TransportError> {
///         message.headers_mut().insert("sent-by", concat!("shop ", env!("CARGO_PKG_VERSION")));
///         Ok(())
///     }
/// }
///
/// let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.publish_layer(Signed);
///     })
///     .build();
/// ```
pub trait PublishLayer: Send + Sync + 'static {
    /// Sees a message, encoded, before it is sent, and may change it.
    ///
    /// # Errors
    ///
    /// What keeps the message from being sent: whoever publishes it gets this error.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any await point, with whoever publishes.
    fn before(&self, message: &mut Prepared) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Learns whether the broker has confirmed a message that was sent. It does nothing where nothing else is written.
    fn after(&self, message: &Prepared, result: Result<(), &TransportError>) {
        let _ = (message, result);
    }
}

/// [`PublishLayer`] behind `dyn`: they are few, and most apps have none.
trait ErasedLayer: Send + Sync {
    fn before<'a>(&'a self, message: &'a mut Prepared) -> BoxFuture<'a, Result<(), TransportError>>;
    fn after(&self, message: &Prepared, result: Result<(), &TransportError>);
}

impl<L: PublishLayer> ErasedLayer for L {
    fn before<'a>(&'a self, message: &'a mut Prepared) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(PublishLayer::before(self, message))
    }

    fn after(&self, message: &Prepared, result: Result<(), &TransportError>) {
        PublishLayer::after(self, message, result);
    }
}

/// The layers around the publishing on one broker, the outer first.
#[derive(Clone, Default)]
pub(crate) struct PublishLayers(Vec<Arc<dyn ErasedLayer>>);

impl PublishLayers {
    pub(crate) fn push(&mut self, layer: impl PublishLayer) {
        self.0.push(Arc::new(layer));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a message through all of them, or to the first that refuses it.
    pub(crate) async fn before(&self, message: &mut Prepared) -> Result<(), TransportError> {
        for layer in &self.0 {
            layer.before(message).await?;
        }
        Ok(())
    }

    /// Tells all of them what became of a message.
    pub(crate) fn after(&self, message: &Prepared, failure: Option<&TransportError>) {
        for layer in self.0.iter().rev() {
            layer.after(message, failure.map_or(Ok(()), Err));
        }
    }
}

impl std::fmt::Debug for PublishLayers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublishLayers").field("count", &self.0.len()).finish()
    }
}

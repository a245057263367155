//! Big payloads go another way than their messages.

use std::fmt;
use std::io::{ErrorKind as IoKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::unpack::{self, Unpack, Unpacked};
use crate::handler::{BatchOutcome, Batched, Call, Failure, Layer, Outcome, Single};
use crate::message::{Incoming, header};
use crate::publish::{Prepared, PublishLayer};
use crate::transport::{ErrorKind, TransportError};

/// Where payloads are kept that are too big for a message.
pub trait PayloadStore: Send + Sync + 'static {
    /// Keeps a payload, and answers the name under which it can be had. It is safe once this completes.
    ///
    /// # Errors
    ///
    /// Where it could not be kept: the message is not sent.
    fn keep(&self, payload: &[u8]) -> impl Future<Output = Result<String, TransportError>> + Send;

    /// The payload of this name; `None` where there is none. The name comes out of a message, so it may be anything.
    ///
    /// # Errors
    ///
    /// Where the store does not answer: the message is tried again by its policy.
    fn load(&self, name: &str) -> impl Future<Output = Result<Option<Vec<u8>>, TransportError>> + Send;
}

/// Sends big payloads by way of a store, and their messages with a reference: the *claim check* pattern.
///
/// It is put on a broker twice. As a [publish layer](crate::app::BrokerScope::publish_layer) it keeps payloads above a size in the store and
/// leaves the header `claim-check` in their place; as a [layer](crate::app::BrokerScope::layer) it loads what such a header names, so
/// that the handlers under it see the message as it was published. What is not in the store is undecodable.
///
/// Payloads stay in the store: it cannot know who is still to read them, a dead letter among them. Clear it by age.
///
/// # Examples
///
/// ```
/// use ruststream::layer::{ClaimCheck, PayloadFiles};
/// use ruststream::prelude::*;
///
/// #[subscriber("pictures")]
/// async fn shrink(picture: &[u8]) {}
///
/// let payloads = ClaimCheck::new(PayloadFiles::new("/var/lib/pictures"), 256 * 1024);
/// let app = RustStream::new(AppInfo::new("pictures", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.publish_layer(payloads.clone());
///         broker.layer(payloads, |broker| {
///             broker.include(shrink);
///         });
///     })
///     .build();
/// # app.check().unwrap();
/// ```
pub struct ClaimCheck<T> {
    store: Arc<T>,
    above: usize,
}

impl<T: PayloadStore> ClaimCheck<T> {
    /// Keeps payloads of more than `above` bytes in the store.
    pub fn new(store: T, above: usize) -> Self {
        Self {
            store: Arc::new(store),
            above,
        }
    }
}

impl<T: PayloadStore> Unpack for ClaimCheck<T> {
    async fn unpack(&self, incoming: Incoming<'_>) -> Result<Option<Unpacked>, Outcome> {
        let Some(name) = incoming.headers().get(header::CLAIM_CHECK) else {
            return Ok(None);
        };
        let name = String::from_utf8_lossy(name);
        match self.store.load(&name).await {
            Ok(Some(payload)) => Ok(Some(Unpacked { payload, headers: None })),
            Ok(None) => Err(Outcome::Undecodable(format!(
                "its payload is not in the store, where its header `{}` says it is: {name:?}",
                header::CLAIM_CHECK
            ))),
            Err(error) => Err(Outcome::Failed(Box::new(Failure::error(error)))),
        }
    }
}

impl<T: PayloadStore> PublishLayer for ClaimCheck<T> {
    async fn before(&self, message: &mut Prepared) -> Result<(), TransportError> {
        if message.payload().len() > self.above {
            let name = self.store.keep(message.payload()).await?;
            message.headers_mut().insert(header::CLAIM_CHECK, name);
            message.payload_mut().clear();
        } else if !message.payload().is_empty() {
            // Headers copied from another message would lead to that one's payload.
            message.headers_mut().remove(header::CLAIM_CHECK);
        }
        Ok(())
    }
}

impl<T: PayloadStore> Layer for ClaimCheck<T> {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        unpack::call(self, call, next).await
    }

    async fn call_batch<'a, S: Send + Sync + 'static>(
        &'a self,
        calls: &'a [Call<'a, S>],
        next: &'a impl Batched<S>,
    ) -> BatchOutcome {
        unpack::call_batch(self, calls, next).await
    }
}

impl<T> Clone for ClaimCheck<T> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            above: self.above,
        }
    }
}

impl<T> fmt::Debug for ClaimCheck<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimCheck")
            .field("above", &self.above)
            .finish_non_exhaustive()
    }
}

/// Keeps payloads as files of one folder, each written through to the disk.
#[derive(Debug, Clone)]
pub struct PayloadFiles {
    folder: Arc<Path>,
}

impl PayloadFiles {
    /// The files of this folder, which is made when it is missing.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into().into(),
        }
    }
}

impl PayloadStore for PayloadFiles {
    async fn keep(&self, payload: &[u8]) -> Result<String, TransportError> {
        let (folder, payload) = (self.folder.clone(), payload.to_vec());
        let name = format!("{:032x}", fastrand::u128(..));
        let path = folder.join(&name);
        let written = spawn_blocking(move || {
            std::fs::create_dir_all(&folder)?;
            // Never over another's: a name is drawn once.
            let mut file = std::fs::File::create_new(path)?;
            file.write_all(&payload)?;
            file.sync_all()?;
            std::fs::File::open(&folder)?.sync_all()
        });
        match written.await {
            Ok(Ok(())) => Ok(name),
            Ok(Err(error)) => Err(self.failed("keep", &name, error)),
            Err(error) => Err(self.failed("keep", &name, error)),
        }
    }

    async fn load(&self, name: &str) -> Result<Option<Vec<u8>>, TransportError> {
        // Anything else would be a path to elsewhere.
        if name.len() != 32 || !name.bytes().all(|one| one.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let path = self.folder.join(name);
        match spawn_blocking(move || std::fs::read(path)).await {
            Ok(Ok(payload)) => Ok(Some(payload)),
            Ok(Err(error)) if error.kind() == IoKind::NotFound => Ok(None),
            Ok(Err(error)) => Err(self.failed("load", name, error)),
            Err(error) => Err(self.failed("load", name, error)),
        }
    }
}

impl PayloadFiles {
    fn failed(
        &self,
        what: &str,
        name: &str,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> TransportError {
        let error = error.into();
        let text = format!("cannot {what} the payload {name} in {}: {error}", self.folder.display());
        TransportError::new(ErrorKind::Unavailable, text).with_cause(error)
    }
}

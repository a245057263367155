//! Payloads travel compressed.

use std::fmt;

use tokio::task::yield_now;

use super::unpack::{self, Unpack, Unpacked};
use crate::codec::compression::{self, Compression, Decompression, MAX_PAYLOAD, PIECE};
use crate::handler::{BatchOutcome, Batched, Call, Layer, Outcome, Single};
use crate::message::{Incoming, header};
use crate::publish::{Prepared, PublishLayer};
use crate::transport::{ErrorKind, TransportError};

/// Sends payloads compressed, and shows them to handlers as they were written. Features `gzip` and `zstd`.
///
/// It is put on a broker twice. As a [publish layer](crate::app::BrokerScope::publish_layer) it compresses payloads above a size, where
/// that makes them smaller, and says so by the header `content-encoding`; a message whose author has set that header is sent as it is. As a
/// [layer](crate::app::BrokerScope::layer) it decompresses by that header whatever is compiled in, however it sends itself, and takes the
/// header away. A payload that is broken, grows beyond the [bound](Self::max_payload), or is compressed in a way that is not known here is
/// undecodable, and its dead letter is what came.
///
/// The answers to requests and what a `TestApp` reads are decompressed without it. Together with [`ClaimCheck`](super::ClaimCheck),
/// what is kept is compressed where this layer is the first to publish and the inner to receive.
///
/// A payload is worked on in pieces of 64 KiB, between which other tasks get their turn.
///
/// # Examples
///
/// ```
/// use ruststream::layer::Compressed;
/// use ruststream::prelude::*;
///
/// #[subscriber("reports", reply = "summaries")]
/// async fn sum_up(report: String) -> String {
///     report.lines().take(3).collect()
/// }
///
/// let app = RustStream::new(AppInfo::new("reports", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| {
/// #       #[cfg(feature = "zstd")] {
///         broker.publish_layer(Compressed::zstd());
///         broker.layer(Compressed::zstd(), |broker| {
///             broker.include(sum_up);
///         });
/// #       }
///     })
///     .build();
/// # app.check().unwrap();
/// ```
#[derive(Clone, Copy)]
pub struct Compressed {
    compression: &'static dyn Compression,
    level: Option<i32>,
    above: usize,
    max_payload: usize,
}

impl Compressed {
    /// Compresses by gzip, which everything reads. Feature `gzip`.
    #[cfg(feature = "gzip")]
    pub fn gzip() -> Self {
        Self::by(&compression::Gzip)
    }

    /// Compresses by Zstandard, which takes less time and less room. Feature `zstd`.
    #[cfg(feature = "zstd")]
    pub fn zstd() -> Self {
        Self::by(&compression::Zstd)
    }

    fn by(compression: &'static dyn Compression) -> Self {
        Self {
            compression,
            level: None,
            above: 1024,
            max_payload: MAX_PAYLOAD,
        }
    }

    /// Sets above how many bytes a payload is compressed. 1 KiB where nothing is set.
    #[must_use]
    pub fn above(mut self, bytes: usize) -> Self {
        self.above = bytes;
        self
    }

    /// Sets how many bytes a payload may have once it is decompressed, so that a few bytes cannot fill the memory. 16 MiB where
    /// nothing is set. What is larger is not compressed either, since its readers would not take it.
    #[must_use]
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = bytes;
        self
    }

    /// Sets the level: 0 to 9 for gzip, where 6 is usual; up to 22 for Zstandard, where 3 is usual. A higher one takes more time
    /// and makes less of a payload. What is beyond counts as the nearest.
    #[must_use]
    pub fn level(mut self, level: i32) -> Self {
        self.level = Some(level);
        self
    }

    async fn compress(&self, payload: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut writer = self.compression.writer(payload.len(), self.level)?;
        for (number, piece) in payload.chunks(PIECE).enumerate() {
            if number > 0 {
                yield_now().await;
            }
            writer.write(piece)?;
        }
        writer.finish()
    }
}

impl PublishLayer for Compressed {
    async fn before(&self, message: &mut Prepared) -> Result<(), TransportError> {
        let length = message.payload().len();
        let set = message.headers().get(header::CONTENT_ENCODING).is_some();
        if set || length <= self.above || length > self.max_payload {
            return Ok(());
        }
        let name = self.compression.name();
        let compressed = self.compress(message.payload()).await.map_err(|error| {
            let text = format!("cannot compress {length} bytes by {name}: {error}");
            TransportError::new(ErrorKind::Busy, text).with_cause(error)
        })?;
        if compressed.len() < length {
            *message.payload_mut() = compressed;
            message.headers_mut().insert(header::CONTENT_ENCODING, name);
        }
        Ok(())
    }
}

impl Unpack for Compressed {
    async fn unpack(&self, incoming: Incoming<'_>) -> Result<Option<Unpacked>, Outcome> {
        let Some(compression) = compression::named(incoming.headers())? else {
            return Ok(None);
        };
        let mut decompression = Decompression::new(compression, incoming.payload(), self.max_payload)?;
        while decompression.advance()? {
            yield_now().await;
        }
        let mut headers = incoming.headers().clone();
        headers.remove(header::CONTENT_ENCODING);
        Ok(Some(Unpacked {
            payload: decompression.into_plain(),
            headers: Some(headers),
        }))
    }
}

impl Layer for Compressed {
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

impl fmt::Debug for Compressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressed")
            .field("by", &self.compression.name())
            .field("level", &self.level)
            .field("above", &self.above)
            .field("max_payload", &self.max_payload)
            .finish()
    }
}

//! One message, encoded and owned, waiting to be sent.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use super::{Destination, nowhere};
use crate::message::{HeaderMap, OptionSet, Outgoing, TransportOptions, header};
use crate::transport::TransportError;

/// One message, encoded and owned, about to be sent: what a [`PublishLayer`](super::PublishLayer) sees.
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    pub(crate) destination: Cow<'static, str>,
    pub(crate) payload: Vec<u8>,
    pub(crate) headers: HeaderMap,
    pub(crate) key: Option<Bytes>,
    pub(crate) delay: Duration,
    pub(crate) options: OptionSet,
}

impl Prepared {
    /// Where it goes.
    pub fn destination(&self) -> &str {
        &self.destination
    }

    /// Sends it elsewhere.
    ///
    /// # Errors
    ///
    /// Where a template could not be filled.
    pub fn set_destination(&mut self, destination: impl Destination) -> Result<(), TransportError> {
        self.destination = destination.into_name().map_err(nowhere)?;
        Ok(())
    }

    /// Its bytes.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Its bytes, to be changed.
    pub fn payload_mut(&mut self) -> &mut Vec<u8> {
        &mut self.payload
    }

    /// Its headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Its headers, to be changed.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    /// Its key.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// How long the broker keeps it back.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Its options for the transport whose type this is; see [`TransportOptions`].
    pub fn options<O: TransportOptions>(&self) -> Option<&O> {
        self.options.get()
    }

    /// Sets its options for the transport whose type this is, in the place of those that were set.
    pub fn set_options(&mut self, options: impl TransportOptions) {
        self.options.insert(options);
    }

    /// Makes it empty again; its buffers stay.
    pub(crate) fn clear(&mut self) {
        self.destination = Cow::Borrowed("");
        self.payload.clear();
        self.headers.clear();
        self.key = None;
        self.delay = Duration::ZERO;
        self.options.clear();
    }

    /// The message as a transport takes it.
    pub(crate) fn outgoing(&self) -> Outgoing<'_> {
        let mut outgoing = Outgoing::new(&self.destination, &self.payload)
            .with_headers(&self.headers)
            .with_delay(self.delay)
            .with_options(&self.options);
        if let Some(key) = &self.key {
            outgoing = outgoing.with_key(key);
        }
        outgoing
    }
}

/// Adds to `headers` what a message with `cause` as its headers hands down to those that it causes: its correlation id, or else its
/// message id, as the correlation id, and the trace context (W3C Trace Context, section 3). What is set stays.
#[inline]
pub(crate) fn inherit(cause: &HeaderMap, headers: &mut HeaderMap) {
    if !cause.is_empty() {
        inherit_some(cause, headers);
    }
}

fn inherit_some(cause: &HeaderMap, headers: &mut HeaderMap) {
    let id = cause
        .get(header::CORRELATION_ID)
        .or_else(|| cause.get(header::MESSAGE_ID));
    let inherited = [
        (header::CORRELATION_ID, id),
        (header::TRACE_PARENT, cause.get(header::TRACE_PARENT)),
        (header::TRACE_STATE, cause.get(header::TRACE_STATE)),
    ];
    for (name, value) in inherited {
        if let Some(value) = value
            && headers.get(name).is_none()
        {
            headers.append(name, Bytes::copy_from_slice(value));
        }
    }
}

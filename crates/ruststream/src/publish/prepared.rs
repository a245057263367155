//! One message, encoded and owned, waiting to be sent.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use crate::message::{HeaderMap, Outgoing};

/// One message, encoded and owned, waiting to be sent in a group with others.
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    pub(crate) destination: Cow<'static, str>,
    pub(crate) payload: Vec<u8>,
    pub(crate) headers: HeaderMap,
    pub(crate) key: Option<Bytes>,
    pub(crate) delay: Duration,
}

impl Prepared {
    /// The message as a transport takes it.
    pub(crate) fn outgoing(&self) -> Outgoing<'_> {
        let mut outgoing = Outgoing::new(&self.destination, &self.payload)
            .with_headers(&self.headers)
            .with_delay(self.delay);
        if let Some(key) = &self.key {
            outgoing = outgoing.with_key(key);
        }
        outgoing
    }
}

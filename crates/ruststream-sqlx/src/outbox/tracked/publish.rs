//! The layer that records what is sent.

use std::fmt;
use std::sync::Arc;

use ruststream::message::header;
use ruststream::publish::{Prepared, PublishLayer};
use ruststream::transport::TransportError;

use super::Shared;
use super::lane::Work;
use crate::clock::millis;
use crate::outbox::OutboxDatabase;
use crate::outbox::fields::TRACKED;
use crate::outbox::message::new_id;
use crate::outbox::records::NewTracked;

/// The publish layer of [`Tracked`](super::Tracked): it records messages of the registered names before they are sent.
pub struct TrackedRecord<DB: OutboxDatabase>(pub(super) Arc<Shared<DB>>);

impl<DB: OutboxDatabase> PublishLayer for TrackedRecord<DB> {
    async fn before(&self, message: &mut Prepared) -> Result<(), TransportError> {
        if !self.0.names.contains(message.destination()) {
            return Ok(());
        }
        self.record(message).await
    }
}

impl<DB: OutboxDatabase> TrackedRecord<DB> {
    async fn record(&self, message: &mut Prepared) -> Result<(), TransportError> {
        let id = new_id();
        message.headers_mut().insert(TRACKED, id.clone());
        if message.headers().get(header::MESSAGE_ID).is_none() {
            message.headers_mut().insert(header::MESSAGE_ID, id.clone());
        }
        let mut headers = Vec::with_capacity(message.headers().size() + 8 * message.headers().len());
        message.headers().write_block(&mut headers);
        let row = NewTracked {
            id,
            destination: message.destination().to_owned(),
            key: message.key().map(<[u8]>::to_vec),
            headers,
            payload: message.payload().to_vec(),
            // What is delayed is not left over before its time.
            resend: millis(self.0.settings.resend_after.saturating_add(message.delay())),
        };
        self.0.lanes.ask(|reply| Work::Record(row, reply)).await
    }
}

impl<DB: OutboxDatabase> fmt::Debug for TrackedRecord<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TrackedRecord").field(&self.0.names).finish()
    }
}

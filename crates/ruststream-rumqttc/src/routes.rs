//! What a server makes of a publish, for tests without one. Which filters a topic is for, their sources say.

use std::any::Any;
use std::sync::Arc;

use ruststream::message::Outgoing;
use ruststream::transport::{Routed, Routes, TransportError};

use crate::delivery::Message;
use crate::publish::packet;
use crate::settings::Settings;

/// The rules of a broker with these settings.
pub(crate) struct Rules(pub(crate) Settings);

impl Routes for Rules {
    fn route(&self, message: &Outgoing<'_>) -> Result<Routed, TransportError> {
        packet(&self.0, message)?;
        Ok(Routed {
            queues: vec![message.destination().to_owned()],
            headers: None,
        })
    }

    fn fields(&self, message: &Outgoing<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
        let mut publish = packet(&self.0, message).ok()?;
        // Only what was kept for later subscriptions bears the mark, and these were there before.
        publish.retain = false;
        Some(Arc::new(Message::new(0, publish)?.into_fields()))
    }
}

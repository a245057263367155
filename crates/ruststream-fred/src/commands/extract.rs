//! The parameter of a handler that queues commands.

use ruststream::handler::{Call, Extract};
use ruststream::transport::{ErrorKind, TransportError};

use super::RedisCommands;
use crate::beside::RedisItem;
use crate::source::Form;
use crate::stream::StreamEntry;

/// As a parameter of a handler. A message of a test without a server comes from no Redis: what is queued with it is told in the log,
/// and goes nowhere.
impl<'a, S: Send + Sync> Extract<'a, S> for RedisCommands {
    type Rejection = TransportError;

    async fn extract(call: Call<'a, S>) -> Result<Self, TransportError> {
        let incoming = call.incoming();
        let commands = if let Some(entry) = incoming.fields::<StreamEntry>() {
            entry.commands()
        } else if let Some(item) = incoming.fields::<RedisItem>() {
            item.commands()
        } else {
            tracing::warn!("this message comes from no Redis: commands that its handler queues are not run");
            return Ok(Self::new(None, Form::default()));
        };
        commands.cloned().ok_or_else(|| {
            TransportError::new(
                ErrorKind::Invalid,
                "commands cannot be queued with the ack of this message: say `.pipeline()` or `.atomic()` of its source",
            )
        })
    }
}

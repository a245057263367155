//! Sending messages.

use std::sync::Arc;

use ruststream::message::Outgoing;
use ruststream::transport::{ErrorKind, Publish, PublishError, TransportError};

use crate::clock::millis;
use crate::engine::Engine;
use crate::operation::{Insert, NewRow, Operation};
use crate::source::check_name;

/// Stores messages in queues. What is published at the same time by any number of tasks is stored in one transaction.
///
/// The destination of a message is the name of a queue. No one needs to read it yet.
#[derive(Debug, Clone)]
pub struct SqlxPublisher {
    engine: Engine,
    max_payload: usize,
}

impl SqlxPublisher {
    pub(crate) fn new(engine: Engine, max_payload: usize) -> Self {
        Self { engine, max_payload }
    }

    fn check(&self, message: &Outgoing<'_>) -> Result<(), TransportError> {
        check_name(message.destination())?;
        let size = message.payload().len() + message.headers().size() + message.key().map_or(0, <[u8]>::len);
        if size > self.max_payload {
            return Err(TransportError::new(
                ErrorKind::TooLarge,
                format!(
                    "a message to {:?} has {size} bytes and the limit is {}: send less, or raise it with `.max_payload(..)` of \
                     the broker",
                    message.destination(),
                    self.max_payload
                ),
            ));
        }
        Ok(())
    }
}

impl Publish for SqlxPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let mut failures = Vec::new();
        let mut rows: Vec<NewRow> = Vec::with_capacity(messages.len());
        // Where the messages stand that go on; empty while that is where they stood.
        let mut positions = Vec::new();
        for (position, message) in messages.iter().enumerate() {
            if let Err(error) = self.check(message) {
                if failures.is_empty() {
                    positions.extend(0..position);
                }
                failures.push((position, error));
                continue;
            }
            if !failures.is_empty() {
                positions.push(position);
            }
            let queue = match rows.last() {
                Some(row) if *row.queue == *message.destination() => Arc::clone(&row.queue),
                _ => Arc::from(message.destination()),
            };
            rows.push(new_row(queue, message));
        }
        if !rows.is_empty() {
            match self.engine.ask(|reply| Operation::Insert(Insert { rows, reply })).await {
                Ok(failed) => failures.extend(failed.into_iter().map(|(index, failure)| {
                    (
                        positions.get(index).copied().unwrap_or(index),
                        TransportError::from(failure),
                    )
                })),
                Err(failure) if failures.is_empty() => return Err(PublishError::all(failure.into())),
                Err(failure) => {
                    failures.extend(positions.into_iter().map(|position| (position, failure.clone().into())));
                }
            }
        }
        match PublishError::some(failures) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

pub(crate) fn new_row(queue: Arc<str>, message: &Outgoing<'_>) -> NewRow {
    let headers = (!message.headers().is_empty()).then(|| {
        let mut block = Vec::with_capacity(message.headers().size() + 8 * message.headers().len());
        message.headers().write_block(&mut block);
        block
    });
    NewRow {
        queue,
        delay: millis(message.delay()),
        key: message.key().map(<[u8]>::to_vec),
        headers,
        payload: message.payload().to_vec(),
    }
}

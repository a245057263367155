//! The dead letters of one queue, for the command `dead-letters` of a service.

use std::pin::Pin;
use std::sync::Arc;

use ruststream::transport::{DeadLetters, DeadMessage, ErrorKind, ReplayAttempts, TransportError};

use crate::dead_letters::DeadMessage as Row;
use crate::engine::Engine;
use crate::operation::{Administer, Administration, Letters, Operation, Which};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TransportError>> + Send + 'a>>;

/// Goes through the ids in one direction, so that a letter which dies again meanwhile is not met twice.
pub(crate) struct Walk {
    engine: Engine,
    queue: Arc<str>,
    after: i64,
}

impl Walk {
    pub(crate) fn new(engine: Engine, queue: Arc<str>) -> Self {
        Self {
            engine,
            queue,
            after: i64::MIN,
        }
    }

    async fn each(&self, ids: &[String], what: impl Fn(i64) -> Administer) -> Result<u64, TransportError> {
        let mut changed = 0;
        for id in ids {
            let id = id.parse().map_err(|_| {
                let text = format!(
                    "`{id}` is no id of a dead letter in `{}`: those are numbers",
                    self.queue
                );
                TransportError::new(ErrorKind::Invalid, text)
            })?;
            let administer = |reply| Operation::Administer(Administration { what: what(id), reply });
            changed += self.engine.ask(administer).await?.len() as u64;
        }
        Ok(changed)
    }
}

impl DeadLetters for Walk {
    fn next(&mut self, most: usize) -> BoxFuture<'_, Vec<DeadMessage>> {
        Box::pin(async move {
            let which = Which::Of {
                queue: Arc::clone(&self.queue),
                after: self.after,
                limit: i64::try_from(most).unwrap_or(i64::MAX),
            };
            let ask = |reply| Operation::Letters(Letters { which, reply });
            let rows = self.engine.ask(ask).await?;
            self.after = rows.last().map_or(self.after, |row| row.id);
            Ok(rows.into_iter().map(letter).collect())
        })
    }

    fn replay<'a>(&'a mut self, ids: &'a [String], attempts: ReplayAttempts) -> BoxFuture<'a, u64> {
        let kept = attempts == ReplayAttempts::Kept;
        Box::pin(self.each(ids, move |id| Administer::Replay { id, kept }))
    }

    fn purge<'a>(&'a mut self, ids: &'a [String]) -> BoxFuture<'a, u64> {
        Box::pin(self.each(ids, |id| Administer::Purge { id }))
    }
}

fn letter(row: Row) -> DeadMessage {
    let mut letter = DeadMessage::new(row.id.to_string(), row.payload);
    letter.reason = row.reason;
    letter.error = row.error;
    letter.attempts = row.attempts;
    letter.source = row.source;
    letter.dead_at = row.dead_at;
    letter.key = row.key.map(Into::into);
    letter.headers = row.headers;
    letter
}

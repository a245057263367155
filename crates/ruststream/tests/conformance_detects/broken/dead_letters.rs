//! What goes wrong with what was given up.

use std::pin::Pin;

use ruststream::transport::{DeadLetters, DeadMessage, ReplayAttempts, TransportError};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TransportError>> + Send + 'a>>;

/// Says that it puts back what it throws away.
pub(crate) struct LosingLetters(pub(crate) Box<dyn DeadLetters>);

impl DeadLetters for LosingLetters {
    fn next(&mut self, most: usize) -> BoxFuture<'_, Vec<DeadMessage>> {
        self.0.next(most)
    }

    fn replay<'a>(&'a mut self, ids: &'a [String], _: ReplayAttempts) -> BoxFuture<'a, u64> {
        self.0.purge(ids)
    }

    fn purge<'a>(&'a mut self, ids: &'a [String]) -> BoxFuture<'a, u64> {
        self.0.purge(ids)
    }
}

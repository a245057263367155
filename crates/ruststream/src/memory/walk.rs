//! The dead letters of one source, one page after the other.

use std::pin::Pin;
use std::sync::Arc;

use super::broker::Shared;
use super::dead::DeadMessage;
use crate::transport::{self, DeadLetters, ReplayAttempts, TransportError};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TransportError>> + Send + 'a>>;

/// Those that were there at the beginning. Attempts count from the start again, whatever is asked: nobody asks for more of a broker
/// that ends with its process.
pub(super) struct Walk {
    shared: Arc<Shared>,
    name: String,
    all: Vec<DeadMessage>,
    shown: usize,
}

impl Walk {
    pub(super) fn new(shared: Arc<Shared>, name: String) -> Self {
        let shelf = shared.directory().shelf(&name);
        let all = shelf.map_or_else(Vec::new, |shelf| shelf.lock().clone());
        Self {
            shared,
            name,
            all,
            shown: 0,
        }
    }

    /// Takes the letters of these places off their shelf.
    fn take(&self, ids: &[String]) -> Vec<DeadMessage> {
        let Some(kept) = self.shared.directory().shelf(&self.name) else {
            return Vec::new();
        };
        let mut kept = kept.lock();
        let mut taken = Vec::new();
        for letter in ids.iter().filter_map(|id| self.all.get(id.parse::<usize>().ok()?)) {
            if let Some(place) = kept.iter().position(|one| one == letter) {
                taken.push(kept.remove(place));
            }
        }
        taken
    }
}

impl DeadLetters for Walk {
    fn next(&mut self, most: usize) -> BoxFuture<'_, Vec<transport::DeadMessage>> {
        let first = self.shown;
        self.shown = first.saturating_add(most).min(self.all.len());
        let page = self.all[first..self.shown].iter().enumerate();
        let page = page.map(|(number, dead)| letter(first + number, dead)).collect();
        Box::pin(std::future::ready(Ok(page)))
    }

    fn replay<'a>(&'a mut self, ids: &'a [String], _: ReplayAttempts) -> BoxFuture<'a, u64> {
        let taken = self.take(ids);
        let count = taken.len();
        let left = self.shared.put_again(&self.name, taken);
        Box::pin(std::future::ready(Ok((count - left) as u64)))
    }

    fn purge<'a>(&'a mut self, ids: &'a [String]) -> BoxFuture<'a, u64> {
        let count = self.take(ids).len();
        Box::pin(std::future::ready(Ok(count as u64)))
    }
}

fn letter(number: usize, dead: &DeadMessage) -> transport::DeadMessage {
    let mut letter = transport::DeadMessage::new(number.to_string(), dead.payload.clone());
    dead.letter.reason.as_str().clone_into(&mut letter.reason);
    letter.error.clone_from(&dead.letter.error);
    letter.attempts = dead.letter.attempts;
    letter.source.clone_from(&dead.letter.source);
    letter.dead_at = dead.letter.at;
    letter.key.clone_from(&dead.key);
    letter.headers.clone_from(&dead.headers);
    letter
}

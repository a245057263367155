//! The book of what is leased: which rows of which claim are still in hand.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::guard::RowGuard;

/// Nothing is held: settled, or dropped because the process gave it up. Its lease is not renewed.
const LET_GO: u8 = 0;
const HELD: u8 = 1;
/// The lease was lost, and its holder told.
const LOST: u8 = 2;

/// Rows claimed together: one token, and for each row whether it is in hand.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) token: i64,
    ids: Box<[i64]>,
    states: Box<[AtomicU8]>,
    /// The ids ascend and lie close together.
    pub(crate) dense: bool,
    /// What has the rows locked.
    pub(crate) guard: Option<Arc<dyn RowGuard>>,
}

impl Chunk {
    pub(crate) fn new(token: i64, ids: Box<[i64]>, guard: Option<Arc<dyn RowGuard>>) -> Arc<Self> {
        let ascending = ids.windows(2).all(|pair| pair[0] < pair[1]);
        let close = match (ids.first(), ids.last()) {
            (Some(first), Some(last)) => last.saturating_sub(*first) / 4 < ids.len().cast_signed() as i64,
            _ => false,
        };
        Arc::new(Self {
            token,
            states: ids.iter().map(|_| AtomicU8::new(HELD)).collect(),
            ids,
            dense: ascending && close,
            guard,
        })
    }
}

impl Chunk {
    /// The rows that are in hand, with their token.
    pub(crate) fn held(&self) -> Vec<(i64, i64)> {
        let rows = self.ids.iter().zip(&self.states);
        let held = rows.filter(|(_, state)| state.load(Ordering::Relaxed) == HELD);
        held.map(|(id, _)| (*id, self.token)).collect()
    }
}

/// One row in hand. Dropping it lets go of the row: its lease is not renewed any more.
#[derive(Debug)]
pub(crate) struct Held {
    chunk: Arc<Chunk>,
    index: u32,
}

impl Held {
    pub(crate) fn new(chunk: Arc<Chunk>, index: usize) -> Self {
        Self {
            chunk,
            index: index as u32,
        }
    }

    pub(crate) fn id(&self) -> i64 {
        self.chunk.ids[self.index as usize]
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn chunk(&self) -> &Arc<Chunk> {
        &self.chunk
    }

    /// Whether a transaction has it locked.
    pub(crate) fn is_locked(&self) -> bool {
        self.chunk.guard.as_ref().is_some_and(|guard| guard.is_alive())
    }

    pub(crate) fn lease_id(&self) -> u64 {
        lease_id(self.id(), self.chunk.token)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.chunk.states[self.index as usize].store(LET_GO, Ordering::Relaxed);
    }
}

/// A token for one claim: never 0 nor the greatest number, which databases use for rows that no one holds, and of always the
/// same size.
pub(crate) fn random_token() -> i64 {
    fastrand::i64((1 << 62)..i64::MAX)
}

/// Tells a row's leases apart: a row that was claimed again by the same process has another one.
pub(crate) fn lease_id(id: i64, token: i64) -> u64 {
    (id ^ token).cast_unsigned()
}

/// The claims of one subscription of which something may be in hand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    chunks: Arc<Mutex<Vec<Weak<Chunk>>>>,
}

impl Book {
    pub(crate) fn enter(&self, chunk: &Arc<Chunk>) {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        if chunks.len() == chunks.capacity() {
            // Ended chunks are dropped only when the book is full, and it is never left more than half full: constant cost a
            // chunk, and the book stays in proportion to what is in hand.
            chunks.retain(|chunk| chunk.strong_count() > 0);
            let live = chunks.len();
            chunks.reserve(live.max(4));
        }
        chunks.push(Arc::downgrade(chunk));
    }

    /// What has rows in hand locked.
    pub(crate) fn guards(&self) -> Vec<Arc<dyn RowGuard>> {
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = chunks.iter().filter_map(Weak::upgrade);
        chunks.filter_map(|chunk| chunk.guard.clone()).collect()
    }

    /// Every row in hand that is held by its lease alone, with its token.
    pub(crate) fn held(&self) -> Vec<(i64, i64)> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = Vec::new();
        chunks.retain(|chunk| {
            let Some(chunk) = chunk.upgrade() else { return false };
            if chunk.guard.as_ref().is_some_and(|guard| guard.is_alive()) {
                return true;
            }
            for (id, state) in chunk.ids.iter().zip(&chunk.states) {
                if state.load(Ordering::Relaxed) == HELD {
                    held.push((*id, chunk.token));
                }
            }
            true
        });
        held
    }

    /// Marks a row's lease as lost, if it is still in hand; true where it is.
    pub(crate) fn lose(&self, id: i64, token: i64) -> bool {
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(chunk) = chunks
            .iter()
            .filter_map(Weak::upgrade)
            .find(|chunk| chunk.token == token)
        else {
            return false;
        };
        let Some(index) = chunk.ids.iter().position(|known| *known == id) else {
            return false;
        };
        chunk.states[index]
            .compare_exchange(HELD, LOST, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_knows_what_is_in_hand() {
        let book = Book::default();
        let chunk = Chunk::new(7, [1, 2, 3].into(), None);
        book.enter(&chunk);
        let mut held: Vec<_> = (0..3).map(|index| Held::new(Arc::clone(&chunk), index)).collect();
        drop(chunk);
        assert_eq!(book.held(), [(1, 7), (2, 7), (3, 7)]);
        held.remove(1);
        assert_eq!(book.held(), [(1, 7), (3, 7)]);
        assert!(book.lose(1, 7));
        assert!(!book.lose(1, 7), "told once");
        assert_eq!(book.held(), [(3, 7)]);
        drop(held);
        assert!(book.held().is_empty());
    }
}

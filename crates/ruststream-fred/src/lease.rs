//! The book of what is in hand: which entries of which read, and until when no one else can have them.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// Nothing is held: settled, or dropped because the process gave it up. Its idle time runs on.
const LET_GO: u8 = 0;
const HELD: u8 = 1;
/// Someone else has it, and its holder was told.
const LOST: u8 = 2;

/// Numbers leases, so that one which was handed out twice has two.
static NEXT_LEASE: AtomicU64 = AtomicU64::new(1);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What came with one read.
#[derive(Debug)]
pub(crate) struct Chunk {
    ids: Box<[Bytes]>,
    states: Box<[AtomicU8]>,
    first_lease: u64,
    /// Milliseconds after [`START`] from which the idle times run, at the earliest.
    renewed: AtomicU64,
}

fn after_start(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*START).as_millis()).unwrap_or(u64::MAX)
}

impl Chunk {
    /// Entries whose idle times run from `since` on, or later.
    pub(crate) fn new(ids: Box<[Bytes]>, since: Instant) -> Arc<Self> {
        Arc::new(Self {
            states: ids.iter().map(|_| AtomicU8::new(HELD)).collect(),
            first_lease: NEXT_LEASE.fetch_add(ids.len() as u64, Ordering::Relaxed),
            renewed: AtomicU64::new(after_start(since)),
            ids,
        })
    }

    pub(crate) fn renewed_at(&self, since: Instant) {
        self.renewed.store(after_start(since), Ordering::Relaxed);
    }

    /// True while no one else can have claimed an entry.
    pub(crate) fn is_fresh(&self, now: Instant, for_how_long: Duration) -> bool {
        let age = after_start(now).saturating_sub(self.renewed.load(Ordering::Relaxed));
        u128::from(age) < for_how_long.as_millis()
    }
}

/// One entry in hand. Dropping it lets go of the entry: its idle time is not reset any more.
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

    pub(crate) fn id(&self) -> &Bytes {
        &self.chunk.ids[self.index as usize]
    }

    pub(crate) fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    pub(crate) fn lease_id(&self) -> u64 {
        self.chunk.first_lease + u64::from(self.index)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state().load(Ordering::Relaxed) == LOST
    }

    fn state(&self) -> &AtomicU8 {
        &self.chunk.states[self.index as usize]
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.state().store(LET_GO, Ordering::Relaxed);
    }
}

/// The reads of one subscription of which something may be in hand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    chunks: Arc<Mutex<Vec<Weak<Chunk>>>>,
}

/// An entry that was in hand when the book was read.
#[derive(Debug, Clone)]
pub(crate) struct InHand {
    chunk: Weak<Chunk>,
    index: usize,
    pub(crate) id: Bytes,
    pub(crate) lease_id: u64,
}

impl InHand {
    /// Marks it as lost, if it is still in hand; true where it is.
    pub(crate) fn lose(&self) -> bool {
        self.chunk.upgrade().is_some_and(|chunk| {
            chunk.states[self.index]
                .compare_exchange(HELD, LOST, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        })
    }

    pub(crate) fn renewed_at(&self, since: Instant) {
        if let Some(chunk) = self.chunk.upgrade() {
            chunk.renewed_at(since);
        }
    }
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

    /// Every entry in hand.
    pub(crate) fn held(&self) -> Vec<InHand> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = Vec::new();
        chunks.retain(|weak| {
            let Some(chunk) = weak.upgrade() else { return false };
            for (index, (id, state)) in chunk.ids.iter().zip(&chunk.states).enumerate() {
                if state.load(Ordering::Relaxed) == HELD {
                    held.push(InHand {
                        chunk: Weak::clone(weak),
                        index,
                        id: id.clone(),
                        lease_id: chunk.first_lease + index as u64,
                    });
                }
            }
            true
        });
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_knows_what_is_in_hand() {
        let book = Book::default();
        let ids = ["1-0", "2-0", "3-0"].map(Bytes::from);
        let chunk = Chunk::new(Box::new(ids), Instant::now());
        book.enter(&chunk);
        let mut held: Vec<_> = (0..3).map(|index| Held::new(Arc::clone(&chunk), index)).collect();
        drop(chunk);
        let ids = |book: &Book| book.held().into_iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(&book), ["1-0", "2-0", "3-0"]);
        held.remove(1);
        assert_eq!(ids(&book), ["1-0", "3-0"]);
        let first = book.held().remove(0);
        assert!(first.lose());
        assert!(!first.lose(), "told once");
        assert!(held[0].is_lost());
        assert_eq!(ids(&book), ["3-0"]);
        drop(held);
        assert!(book.held().is_empty());
    }

    #[test]
    fn a_chunk_is_fresh_for_as_long_as_no_one_can_claim_it() {
        let now = Instant::now() + Duration::from_secs(10);
        let chunk = Chunk::new(Box::new([]), now);
        let lease = Duration::from_secs(3);
        assert!(chunk.is_fresh(now + Duration::from_secs(2), lease));
        assert!(!chunk.is_fresh(now + Duration::from_secs(3), lease));
        chunk.renewed_at(now + Duration::from_secs(2));
        assert!(chunk.is_fresh(now + Duration::from_secs(4), lease));
    }
}

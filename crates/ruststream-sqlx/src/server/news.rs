//! What tells the waiting claims of a process that a queue has something new.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// So many rows that no one counts them: it is known only that there are some.
pub(crate) const SOME: usize = 1 << 32;

/// Queues share counters, so that their number bounds nothing; two that share one wake each other in vain now and then.
const SLOTS: usize = 64;

pub(crate) struct News {
    counts: [AtomicU64; SLOTS],
    changed: Notify,
}

impl Default for News {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; SLOTS],
            changed: Notify::new(),
        }
    }
}

impl News {
    /// Says that so many rows of a queue became ready, or may have; [`SOME`] where no one knows how many.
    pub(crate) fn tell(&self, queue: &str, rows: usize) {
        self.counts[slot(queue)].fetch_add(rows as u64, Ordering::Release);
        self.changed.notify_one();
    }

    /// Says that any queue may have something new.
    pub(crate) fn tell_all(&self) {
        for count in &self.counts {
            count.fetch_add(SOME as u64, Ordering::Release);
        }
        self.changed.notify_one();
    }

    /// A number that changes whenever a queue has something new: by the number of rows.
    pub(super) fn count(&self, queue: &str) -> u64 {
        self.counts[slot(queue)].load(Ordering::Acquire)
    }

    /// Waits for news of any queue.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// FNV-1a.
fn slot(queue: &str) -> usize {
    let hash = queue.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash % SLOTS as u64) as usize
}

//! What the halves and publishers of one process tell its subscriptions: something of yours is due, or will be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The subscriptions of a connection, by the key that they read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wakes {
    by_key: Arc<Mutex<HashMap<String, Vec<Weak<Wake>>>>>,
}

/// One subscription's alarm: when it has to look next, besides its regular looks.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    due: Mutex<Option<Instant>>,
    changed: Notify,
}

impl Wakes {
    /// An alarm for a subscription on `key`.
    pub(crate) fn enter(&self, key: &str) -> Arc<Wake> {
        let wake = Arc::new(Wake::default());
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        by_key.retain(|_, wakes| {
            wakes.retain(|wake| wake.strong_count() > 0);
            !wakes.is_empty()
        });
        by_key.entry(key.to_owned()).or_default().push(Arc::downgrade(&wake));
        wake
    }

    /// Something on `key` is due in `after`.
    pub(crate) fn due(&self, key: &str, after: Duration) {
        let by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        for wake in by_key.get(key).into_iter().flatten().filter_map(Weak::upgrade) {
            wake.due(after);
        }
    }
}

impl Wake {
    /// Something is due in `after`; the earliest such time counts.
    pub(crate) fn due(&self, after: Duration) {
        // Later than anyone looks anyway.
        let Some(at) = Instant::now().checked_add(after) else {
            return;
        };
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.is_none_or(|known| at < known) {
            *due = Some(at);
            self.changed.notify_one();
        }
    }

    /// When something is due, as far as is known.
    pub(crate) fn next(&self) -> Option<Instant> {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what is due by now: it is looked for.
    pub(crate) fn take_due(&self, now: Instant) -> bool {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        match *due {
            Some(at) if at <= now => {
                *due = None;
                true
            }
            _ => false,
        }
    }

    /// Waits until an earlier time has become known.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

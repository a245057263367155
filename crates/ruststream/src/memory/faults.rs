//! Faults on demand: what tests need of a broker that never fails by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::transport::{ErrorKind, TransportError};

/// A call that [`MemoryBroker::fail_next`](super::MemoryBroker::fail_next) can make fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// [`Broker::connect`](crate::transport::Broker::connect).
    Connect,
    /// [`Source::open`](crate::transport::Source::open).
    Open,
    /// [`Fetch::fetch`](crate::transport::Fetch::fetch).
    Fetch,
    /// [`Settle::settle`](crate::transport::Settle::settle).
    Settle,
    /// [`Settle::renew`](crate::transport::Settle::renew).
    Renew,
    /// [`Publish::publish`](crate::transport::Publish::publish).
    Publish,
    /// [`Connection::ping`](crate::transport::Connection::ping).
    Ping,
}

#[derive(Default)]
pub(super) struct Faults {
    /// Whether there is anything to look up; all that a call without faults pays for.
    armed: AtomicBool,
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    down: bool,
    /// The call, how many of it are still to fail, and as what.
    next: Vec<(Operation, usize, ErrorKind)>,
}

impl Faults {
    pub(super) fn fail_next(&self, operation: Operation, count: usize, kind: ErrorKind) {
        self.change(|plan| {
            plan.next.retain(|(planned, ..)| *planned != operation);
            if count > 0 {
                plan.next.push((operation, count, kind));
            }
        });
    }

    pub(super) fn set_down(&self, down: bool) {
        self.change(|plan| plan.down = down);
    }

    fn change(&self, change: impl FnOnce(&mut Plan)) {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut plan);
        self.armed.store(plan.down || !plan.next.is_empty(), Ordering::Relaxed);
    }

    /// Fails where a fault is planned for this call.
    #[inline]
    pub(super) fn check(&self, operation: Operation) -> Result<(), TransportError> {
        if self.armed.load(Ordering::Relaxed) {
            self.look_up(operation)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn look_up(&self, operation: Operation) -> Result<(), TransportError> {
        let mut failure = None;
        self.change(|plan| {
            if plan.down {
                failure = Some(ErrorKind::Unavailable);
            } else if let Some((_, left, kind)) = plan.next.iter_mut().find(|(planned, ..)| *planned == operation) {
                *left -= 1;
                failure = Some(*kind);
                plan.next.retain(|(_, left, _)| *left > 0);
            }
        });
        match failure {
            None => Ok(()),
            Some(kind) => Err(TransportError::new(
                kind,
                format!("the in-process broker fails this call ({operation:?}), as the test asked it to"),
            )),
        }
    }
}

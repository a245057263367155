//! The half of a subscription that takes deliveries, and the delivery.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use ruststream::message::{HeaderMap, header};
use ruststream::transport::{Delivery, Fetch, TransportError};
use tokio::sync::oneshot;

use crate::clock::from_millis;
use crate::engine::Engine;
use crate::error::Failure;
use crate::lease::{Book, Chunk, Held, random_token};
use crate::operation::{Claim, Claimed, Operation, Part, Settlement};
use crate::settle::InboxReceipt;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::transaction::{Lender, Slot};

/// A claim is made so small that it brings about this many bytes at most, going by the largest payload seen of late.
const CLAIM_BYTES: usize = 32 * 1024 * 1024;

/// What a payload may be like before the first is seen.
const UNKNOWN_PAYLOAD: usize = 512 * 1024;

/// Tells the claims of one subscription from those of others.
static NEXT_SUBSCRIPTION: AtomicU64 = AtomicU64::new(1);

/// Takes deliveries from a queue.
pub struct InboxFetch {
    engine: Engine,
    queue: Arc<str>,
    lease: i64,
    book: Book,
    subscription: u64,
    /// A claim on its way: kept here so that a `fetch` which is dropped loses nothing.
    pending: Option<oneshot::Receiver<Result<Claimed, Failure>>>,
    /// Claimed and not handed out, because the room had become smaller.
    rest: VecDeque<InboxDelivery>,
    /// The largest payload seen of late.
    largest: usize,
}

impl InboxFetch {
    pub(crate) fn new(engine: Engine, queue: Arc<str>, lease: i64, book: Book) -> Self {
        Self {
            engine,
            queue,
            lease,
            book,
            subscription: NEXT_SUBSCRIPTION.fetch_add(1, Ordering::Relaxed),
            pending: None,
            rest: VecDeque::new(),
            largest: UNKNOWN_PAYLOAD,
        }
    }

    async fn claim(&self, room: usize) -> Result<oneshot::Receiver<Result<Claimed, Failure>>, Failure> {
        let claim = |reply| {
            Operation::Claim(Claim {
                subscription: self.subscription,
                queue: Arc::clone(&self.queue),
                room: room.min(CLAIM_BYTES / self.largest.max(1)).max(1),
                lease: self.lease,
                token: random_token(),
                reply,
            })
        };
        self.engine.send(claim).await
    }

    fn take_in(&mut self, claimed: Claimed) -> impl Iterator<Item = InboxDelivery> + use<> {
        let chunk = Chunk::new(claimed.token, claimed.rows.iter().map(|row| row.id).collect());
        self.book.enter(&chunk);
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        let lender = self.engine.lender();
        let largest = claimed.rows.iter().map(|row| row.payload.len()).max().unwrap_or(0);
        // It forgets a large one slowly.
        self.largest = largest.max(self.largest - self.largest / 8);
        claimed
            .rows
            .into_iter()
            .enumerate()
            .map(move |(index, row)| InboxDelivery {
                row: InboxRow {
                    id: row.id,
                    #[cfg(any(feature = "postgres", feature = "mysql"))]
                    lender: lender.clone(),
                    #[cfg(any(feature = "postgres", feature = "mysql"))]
                    slot: OnceLock::new(),
                },
                attempt: row.attempt,
                unfinished: row.unfinished,
                published_at: row.published_at,
                key: row.key,
                headers: row.headers,
                payload: row.payload,
                held: Held::new(Arc::clone(&chunk), index),
            })
    }

    /// What was taken and not handed out.
    fn leftovers(&mut self) -> Vec<Part> {
        let claimed = self.pending.take().and_then(|mut pending| pending.try_recv().ok());
        let mut parts = Vec::new();
        if let Some(Ok(claimed)) = claimed {
            parts.push(Part::Release {
                token: claimed.token,
                ids: claimed.rows.iter().map(|row| row.id).collect(),
            });
        }
        for delivery in self.rest.drain(..) {
            let token = delivery.held.chunk().token;
            match parts.last_mut() {
                Some(Part::Release { token: last, ids }) if *last == token => ids.push(delivery.held.id()),
                _ => parts.push(Part::Release {
                    token,
                    ids: vec![delivery.held.id()],
                }),
            }
        }
        parts
    }
}

impl Fetch for InboxFetch {
    type Delivery = InboxDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<InboxDelivery>) -> Result<(), TransportError> {
        let room = room.max(1);
        if self.rest.is_empty() {
            let pending = match self.pending.take() {
                Some(pending) => pending,
                None => self.claim(room).await?,
            };
            // It waits in its place: a call that is dropped here leaves it to the next.
            let answer = self.pending.insert(pending).await;
            self.pending = None;
            let claimed = answer.unwrap_or_else(|_| Err(self.engine.died()))?;
            let mut deliveries = self.take_in(claimed);
            into.extend(deliveries.by_ref().take(room));
            self.rest.extend(deliveries);
            return Ok(());
        }
        let count = room.min(self.rest.len());
        into.extend(self.rest.drain(..count));
        Ok(())
    }

    async fn close(mut self) -> Result<(), TransportError> {
        if self.pending.is_some() {
            // After this answer the claim either lies in `pending` or was never made.
            let subscription = self.subscription;
            self.engine
                .ask(|reply| Operation::Cancel { subscription, reply })
                .await?;
        }
        let parts = self.leftovers();
        if parts.is_empty() {
            return Ok(());
        }
        let queue = Arc::clone(&self.queue);
        let answer = self
            .engine
            .ask(|reply| {
                Operation::Settle(Settlement {
                    queue,
                    parts,
                    reply: Some(reply),
                })
            })
            .await?;
        match answer.failure {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }
}

impl Drop for InboxFetch {
    /// Gives back what was not handed out, without waiting. A claim on its way is given back by the writer, which finds no one
    /// to take its answer.
    fn drop(&mut self) {
        let parts = self.leftovers();
        if !parts.is_empty() {
            self.engine.notify(Operation::Settle(Settlement {
                queue: Arc::clone(&self.queue),
                parts,
                reply: None,
            }));
        }
    }
}

impl fmt::Debug for InboxFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxFetch")
            .field("queue", &self.queue)
            .field("waiting", &self.pending.is_some())
            .finish_non_exhaustive()
    }
}

/// A message in hand, leased.
pub struct InboxDelivery {
    row: InboxRow,
    attempt: u32,
    unfinished: bool,
    published_at: i64,
    key: Option<Vec<u8>>,
    headers: HeaderMap,
    payload: Vec<u8>,
    held: Held,
}

/// What an inbox knows of a delivery besides: its row. Lent through [`Delivery::fields`].
#[non_exhaustive]
pub struct InboxRow {
    /// The id of the row, unique in its table for all time.
    pub id: i64,
    /// Where transactions come from, if they can be borrowed.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) lender: Option<Arc<dyn Lender>>,
    /// The transaction of this message, once its handler has asked for it.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) slot: OnceLock<Arc<dyn Slot>>,
}

impl fmt::Debug for InboxRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxRow").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Delivery for InboxDelivery {
    type Receipt = InboxReceipt;

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    fn key(&self) -> Option<&[u8]> {
        self.key.as_deref().or_else(|| self.headers.get(header::KEY))
    }

    fn published_at(&self) -> Option<SystemTime> {
        Some(from_millis(self.published_at))
    }

    fn lease_id(&self) -> u64 {
        self.held.lease_id()
    }

    fn fields(&self) -> &(dyn Any + Send + Sync) {
        &self.row
    }

    fn into_receipt(self) -> InboxReceipt {
        InboxReceipt {
            held: self.held,
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            slot: self.row.slot.into_inner(),
        }
    }
}

impl fmt::Debug for InboxDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxDelivery")
            .field("id", &self.row.id)
            .field("attempt", &self.attempt)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

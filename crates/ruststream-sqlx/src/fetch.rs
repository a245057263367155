//! The half of a subscription that takes deliveries, and the delivery.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use ruststream::message::{HeaderMap, Outgoing, header};
use ruststream::transport::{Delivery, Fetch, PublishError, TransportError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::clock::from_millis;
use crate::engine::Engine;
use crate::error::Failure;
use crate::guard::{Boxed, Guard, Locked, Place, RowGuard, ToLock};
use crate::lease::{Book, Chunk, Held, random_token};
use crate::operation::{
    Claim, Claimed, ClaimedRow, NewRow, Operation, Part, PruneBatch, Pruning, RawRow, RetryRow, Settlement,
};
use crate::publish::{check_message, new_row};
use crate::settle::InboxReceipt;
use crate::table::{Decode, TableReader};
use crate::terms::Terms;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::transaction::{Lender, Slot};

/// A claim is made so small that it brings about this many bytes at most, going by the largest payload seen of late.
const CLAIM_BYTES: usize = 32 * 1024 * 1024;

/// What a payload may be like before the first is seen.
const UNKNOWN_PAYLOAD: usize = 512 * 1024;

/// About how often a subscription has deleted what was kept long enough.
const PRUNE: Duration = Duration::from_secs(30);

/// How many rows one statement deletes then.
const PRUNE_BATCH: i64 = 500;

/// For how many milliseconds a message is left alone whose lock someone else has.
const LOCKED_ELSEWHERE: std::ops::Range<i64> = 30..100;

/// What was claimed, and locked.
struct Guarded {
    claimed: Claimed,
    guard: Option<Arc<dyn RowGuard>>,
}

/// Tells the claims of one subscription from those of others.
static NEXT_SUBSCRIPTION: AtomicU64 = AtomicU64::new(1);

/// Takes deliveries from a queue.
pub struct InboxFetch {
    engine: Engine,
    terms: Arc<Terms>,
    book: Book,
    subscription: u64,
    /// When to delete next what was kept long enough.
    prune_at: Instant,
    /// A claim on its way: kept here so that a `fetch` which is dropped loses nothing.
    pending: Option<oneshot::Receiver<Result<Claimed, Failure>>>,
    /// Where a transaction may be open for the next claim.
    place: Option<Place>,
    /// Claimed rows that are being locked: kept here as the claim is.
    locking: Option<Boxed<'static, Result<Guarded, (Claimed, Failure)>>>,
    guard: Guard,
    /// What claims, where it is a table of the user's own.
    reader: Option<TableReader>,
    /// Claimed, and not locked: the locking failed.
    unlocked: Option<Claimed>,
    /// Claimed and not handed out, because the room had become smaller.
    rest: VecDeque<InboxDelivery>,
    /// The largest payload seen of late.
    largest: usize,
}

impl InboxFetch {
    pub(crate) fn new(engine: Engine, terms: Arc<Terms>, book: Book, guard: Guard) -> Self {
        Self {
            reader: terms.table.clone().map(|table| TableReader::new(&engine, table)),
            engine,
            terms,
            book,
            prune_at: Instant::now(),
            subscription: NEXT_SUBSCRIPTION.fetch_add(1, Ordering::Relaxed),
            pending: None,
            place: None,
            locking: None,
            guard,
            unlocked: None,
            rest: VecDeque::new(),
            largest: UNKNOWN_PAYLOAD,
        }
    }

    async fn claim(&mut self, room: usize) -> Result<oneshot::Receiver<Result<Claimed, Failure>>, Failure> {
        let room = self.room(room);
        let claim = |reply| {
            Operation::Claim(Claim {
                subscription: self.subscription,
                queue: Arc::clone(&self.terms.queue),
                room,
                lease: self.terms.lease,
                token: random_token(),
                choice: self.terms.choice,
                shared: self.terms.shared.clone(),
                reply,
            })
        };
        self.engine.send(claim).await
    }

    fn take_in(&mut self, guarded: Guarded) -> impl Iterator<Item = InboxDelivery> + use<> {
        let Guarded { claimed, guard } = guarded;
        let ids = claimed.rows.iter().map(|row| row.id).collect();
        let chunk = Chunk::new(claimed.token, ids, guard);
        let key = match &self.guard {
            Guard::Names(key, _) => Some(*key),
            _ => None,
        };
        self.book.enter(&chunk);
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        let lender = self.engine.lender();
        let terms = Arc::clone(&self.terms);
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
                    row: row.raw,
                    #[cfg(any(feature = "postgres", feature = "mysql"))]
                    token: chunk.token,
                    #[cfg(any(feature = "postgres", feature = "mysql"))]
                    terms: Arc::clone(&terms),
                    #[cfg(any(feature = "postgres", feature = "mysql"))]
                    lender: lender.clone(),
                    #[cfg(any(feature = "postgres", feature = "mysql"))]
                    slot: OnceLock::new(),
                },
                attempt: row.attempt,
                unfinished: row.unfinished,
                published_at: row.published_at,
                lock: key.map(|by| by.name(&terms.queue, row.id, row.key.as_deref())),
                key: row.key,
                headers: row.headers,
                payload: row.payload,
                replies: None,
                terms: Arc::clone(&terms),
                held: Held::new(Arc::clone(&chunk), index),
            })
    }

    /// Claims rows, waiting for them.
    async fn claimed(&mut self, room: usize) -> Result<Claimed, Failure> {
        if self.reader.is_some() {
            return self.claimed_of_table(room).await;
        }
        if self.pending.is_none() {
            self.pending = Some(self.claim(room).await?);
        }
        // It waits in its place: a call that is dropped here leaves it to the next.
        let answer = loop {
            if self.terms.prunes() && Instant::now() >= self.prune_at {
                self.prune();
            }
            let Some(pending) = &mut self.pending else {
                break Err(self.engine.died());
            };
            if !self.terms.prunes() {
                break pending.await.unwrap_or_else(|_| Err(self.engine.died()));
            }
            tokio::select! {
                biased;
                answer = pending => break answer.unwrap_or_else(|_| Err(self.engine.died())),
                () = sleep_until(self.prune_at) => {}
            }
        };
        self.pending = None;
        answer
    }

    async fn claimed_of_table(&mut self, room: usize) -> Result<Claimed, Failure> {
        let room = self.room(room);
        loop {
            if self.terms.prunes() && Instant::now() >= self.prune_at {
                self.prune();
            }
            let Some(reader) = &mut self.reader else {
                return Err(self.engine.died());
            };
            tokio::select! {
                biased;
                claimed = reader.claim(&self.engine, room, self.terms.lease) => return claimed,
                () = sleep_until(self.prune_at), if self.terms.prunes() => {}
            }
        }
    }

    /// How many rows to claim.
    fn room(&self, room: usize) -> usize {
        let room = if self.terms.singly { 1 } else { room };
        room.min(CLAIM_BYTES / self.largest.max(1)).max(1)
    }

    /// Waits until a transaction may be open, where the claim is to have one.
    async fn take_place(&mut self) -> Result<(), Failure> {
        if let Guard::Rows(guards) = &self.guard
            && self.place.is_none()
        {
            self.place = Some(guards.place().await?);
        }
        Ok(())
    }

    /// Gives back what is locked and was not handed out, by the transactions that have it locked.
    async fn give_back_locked(&mut self) {
        let mut chunks: Vec<Arc<Chunk>> = Vec::new();
        let (deliveries, others): (Vec<_>, Vec<_>) =
            self.rest.drain(..).partition(|delivery| delivery.held.is_locked());
        self.rest = others.into();
        for delivery in &deliveries {
            if !chunks.iter().any(|chunk| Arc::ptr_eq(chunk, delivery.held.chunk())) {
                chunks.push(Arc::clone(delivery.held.chunk()));
            }
        }
        for chunk in chunks {
            let token = chunk.token;
            let its = deliveries
                .iter()
                .filter(|delivery| Arc::ptr_eq(delivery.held.chunk(), &chunk));
            let ids: Vec<i64> = its.map(|delivery| delivery.held.id()).collect();
            let mut left = chunk.held();
            left.retain(|(id, _)| !ids.contains(id));
            if let Some(guard) = &chunk.guard {
                // Where that fails, they are free as soon as their lease ends.
                let _ = guard.settle(vec![Part::Release { token, ids }], left).await;
            }
        }
    }

    /// Has what was kept long enough deleted. Subscriptions and processes do not do so in step.
    fn prune(&mut self) {
        self.prune_at = Instant::now() + PRUNE.mul_f64(0.5 + fastrand::f64());
        let Terms { keep, keep_dead, .. } = *self.terms;
        self.engine.notify(match &self.terms.table {
            Some(table) => Operation::Table(table.prune(keep, keep_dead, PRUNE_BATCH), oneshot::channel().0),
            None => Operation::Prune(Pruning {
                batch: PruneBatch {
                    queue: Arc::clone(&self.terms.queue),
                    keep_dead,
                    limit: PRUNE_BATCH,
                },
                reply: None,
            }),
        });
    }

    /// Takes the locks that hold claimed rows beside their lease.
    fn lock(&mut self, mut claimed: Claimed) -> Boxed<'static, Result<Guarded, (Claimed, Failure)>> {
        let terms = Arc::clone(&self.terms);
        match (&self.guard, self.place.take()) {
            (Guard::Rows(guards), Some(place)) => {
                let guards = Arc::clone(guards);
                Box::pin(async move {
                    let to_lock = ToLock {
                        queue: Arc::clone(&terms.queue),
                        rows: claimed.rows.iter().map(|row| (row.id, claimed.token)).collect(),
                        lease: terms.lease,
                    };
                    match guards.lock_rows(place, to_lock).await {
                        Ok(Locked { guard, ids }) => {
                            // What is not locked was taken over meanwhile.
                            claimed.rows.retain(|row| ids.contains(&row.id));
                            let guard = Some(guard);
                            Ok(Guarded { claimed, guard })
                        }
                        Err(failure) => Err((claimed, failure)),
                    }
                })
            }
            (Guard::Names(key, names), _) => {
                let (key, names, engine) = (*key, Arc::clone(names), self.engine.clone());
                Box::pin(async move {
                    let name = |row: &ClaimedRow| key.name(&terms.queue, row.id, row.key.as_deref());
                    let ours = match names.try_lock(claimed.rows.iter().map(name).collect()).await {
                        Ok(ours) => ours,
                        Err(failure) => return Err((claimed, failure)),
                    };
                    let mut ours = ours.into_iter();
                    let token = claimed.token;
                    let others = claimed.rows.extract_if(.., |_| !ours.next().unwrap_or(false));
                    let defer = |row: ClaimedRow| RetryRow {
                        id: row.id,
                        token,
                        after: fastrand::i64(LOCKED_ELSEWHERE),
                    };
                    let deferred: Vec<RetryRow> = others.map(defer).collect();
                    if !deferred.is_empty() {
                        let parts = vec![Part::Defer(deferred)];
                        engine.notify(Operation::Settle(Settlement {
                            queue: Arc::clone(&terms.queue),
                            parts,
                            frees: false,
                            reply: None,
                        }));
                    }
                    Ok(Guarded { claimed, guard: None })
                })
            }
            _ => Box::pin(std::future::ready(Ok(Guarded { claimed, guard: None }))),
        }
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
        for claimed in [
            self.unlocked.take(),
            self.reader.as_mut().and_then(TableReader::leftover),
        ]
        .into_iter()
        .flatten()
        {
            parts.push(Part::Release {
                token: claimed.token,
                ids: claimed.rows.iter().map(|row| row.id).collect(),
            });
        }
        // What is locked is let go with its transaction: to release it by another would be to wait for that.
        for delivery in self.rest.drain(..).filter(|delivery| !delivery.held.is_locked()) {
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
        while self.rest.is_empty() {
            if self.locking.is_none() {
                self.take_place().await?;
                let claimed = match self.unlocked.take() {
                    Some(claimed) => claimed,
                    None => self.claimed(room).await?,
                };
                if matches!(self.guard, Guard::None) {
                    let mut deliveries = self.take_in(Guarded { claimed, guard: None });
                    into.extend(deliveries.by_ref().take(room));
                    self.rest.extend(deliveries);
                    return Ok(());
                }
                self.locking = Some(self.lock(claimed));
            }
            let Some(locking) = &mut self.locking else { continue };
            let locked = locking.await;
            self.locking = None;
            match locked {
                Ok(guarded) => {
                    let deliveries = self.take_in(guarded);
                    self.rest.extend(deliveries);
                }
                Err((claimed, failure)) => {
                    self.unlocked = Some(claimed);
                    return Err(failure.into());
                }
            }
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
        if let Some(locking) = self.locking.take() {
            match locking.await {
                Ok(guarded) => {
                    let deliveries = self.take_in(guarded);
                    self.rest.extend(deliveries);
                }
                Err((claimed, _)) => self.unlocked = Some(claimed),
            }
        }
        if let Some(reader) = &mut self.reader
            && let Some(claimed) = reader.finish().await
        {
            let deliveries = self.take_in(Guarded { claimed, guard: None });
            self.rest.extend(deliveries);
        }
        self.give_back_locked().await;
        let locks: Vec<String> = self.rest.iter().filter_map(|delivery| delivery.lock.clone()).collect();
        let parts = self.leftovers();
        if parts.is_empty() {
            return Ok(());
        }
        if let Some(table) = &self.terms.table {
            let work = table.settlement(&parts);
            self.engine.ask(|reply| Operation::Table(work, reply)).await?;
            self.engine.tell_tables();
            return Ok(());
        }
        let queue = Arc::clone(&self.terms.queue);
        let answer = self
            .engine
            .ask(|reply| {
                Operation::Settle(Settlement {
                    queue,
                    parts,
                    frees: self.terms.choice.fifo,
                    reply: Some(reply),
                })
            })
            .await?;
        if let Guard::Names(_, names) = &self.guard {
            names.unlock(locks).await;
        }
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
        if let Some(table) = &self.terms.table {
            if !parts.is_empty() {
                let work = table.settlement(&parts);
                self.engine.notify(Operation::Table(work, oneshot::channel().0));
            }
            return;
        }
        if !parts.is_empty() {
            self.engine.notify(Operation::Settle(Settlement {
                queue: Arc::clone(&self.terms.queue),
                parts,
                frees: self.terms.choice.fifo,
                reply: None,
            }));
        }
    }
}

impl fmt::Debug for InboxFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxFetch")
            .field("queue", &self.terms.queue)
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
    /// To be stored by its ack.
    replies: Option<Arc<[NewRow]>>,
    /// The name of the lock that is taken for it.
    lock: Option<String>,
    terms: Arc<Terms>,
    held: Held,
}

/// What an inbox knows of a delivery besides: its row. Lent through [`Delivery::fields`].
#[non_exhaustive]
pub struct InboxRow {
    /// The id of the row, unique in its table for all time. Of a table of the user's own whose ids are no numbers, a number that
    /// this process has given it.
    pub id: i64,
    /// The row as the driver has it, and what makes its struct.
    pub(crate) row: Option<(RawRow, Decode)>,
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) token: i64,
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) terms: Arc<Terms>,
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

    fn enclose(&mut self, replies: &[Outgoing<'_>]) -> Option<Result<(), PublishError>> {
        if self.terms.table.is_some() || !self.terms.encloses {
            return None;
        }
        let mut rows = Vec::with_capacity(replies.len());
        for (position, reply) in replies.iter().enumerate() {
            if let Err(error) = check_message(reply, self.terms.max_payload) {
                return PublishError::some(vec![(position, error)]).map(Err);
            }
            rows.push(new_row(Arc::from(reply.destination()), reply));
        }
        self.replies = Some(rows.into());
        Some(Ok(()))
    }

    fn attempt_failed(&mut self) {
        self.replies = None;
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        if let Some(slot) = self.row.slot.take() {
            slot.abandon();
        }
    }

    fn into_receipt(self) -> InboxReceipt {
        InboxReceipt {
            held: self.held,
            replies: self.replies,
            lock: self.lock,
            attempt: self.attempt,
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

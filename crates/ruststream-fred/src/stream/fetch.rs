//! The half of a subscription that takes deliveries.

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fred::interfaces::Resp3Frame as Frame;
use ruststream::transport::{ErrorKind, Fetch, TransportError};
use tokio::time::{Instant, sleep_until, timeout};

use super::delivery::StreamDelivery;
use super::entries::Read;
use super::shared::{Settlement, Shared, Tended, What};
use super::time::EntryId;
use crate::error::{Failure, Sign};
use crate::link::{Link, Purpose};

/// A read is made so small that it brings about this many bytes at most, going by the largest payload seen of late.
const READ_BYTES: usize = 32 * 1024 * 1024;

/// What a payload may be like before the first is seen.
const UNKNOWN_PAYLOAD: usize = 64 * 1024;

/// About how many bytes a read is to bring. fred reads a link in pieces of 64 KiB and begins to parse an answer anew with each, so
/// that one of many pieces is parsed many times.
const ANSWER: usize = 64 * 1024;

/// About what an entry takes beside its payload: its id, the names of its fields, and the lengths of all.
const ENTRY: usize = 80;

/// A group that is lost again within this time is an error, so that making it is no hot loop.
const LOST_AGAIN: Duration = Duration::from_secs(1);

/// How soon a read is told again to end.
const UNBLOCK_AGAIN: Duration = Duration::from_millis(5);

type Call<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Takes deliveries from a stream.
pub struct StreamFetch {
    shared: Arc<Shared>,
    /// What reads wait on.
    link: Option<Arc<Link>>,
    /// Calls on their way: kept here so that a `fetch` which is dropped loses nothing.
    connecting: Option<Call<Link>>,
    reading: Option<(Instant, Call<Frame>)>,
    tending: Option<(Instant, Call<Tended>)>,
    /// When to look next for what is due or orphaned.
    next_look: Instant,
    /// Something is due, and comes before what is new.
    first: bool,
    woken_by: Vec<Bytes>,
    /// Read and not handed out, because the room had become smaller.
    rest: VecDeque<StreamDelivery>,
    /// The largest payload seen of late.
    largest: usize,
    /// The size of a payload, on the average of late.
    typical: usize,
    last_read: EntryId,
    /// When the group was last made again.
    made_again: Option<Instant>,
    missed: Option<Missed>,
}

/// An answer was lost, and may have brought entries: they are looked for at once, and once more when no read of the lost link can be
/// waiting in the server any more.
struct Missed {
    next: Instant,
    last: Instant,
}

/// What came of one wait.
enum Event {
    Linked(Result<Link, Failure>),
    Read(Instant, Result<Frame, Failure>),
    Tended(Instant, Result<Tended, Failure>),
    Look,
}

impl StreamFetch {
    pub(super) fn new(shared: Arc<Shared>, position: EntryId) -> Self {
        Self {
            shared,
            link: None,
            connecting: None,
            reading: None,
            tending: None,
            next_look: Instant::now(),
            first: true,
            woken_by: Vec::new(),
            rest: VecDeque::new(),
            largest: UNKNOWN_PAYLOAD,
            typical: 512,
            last_read: position,
            made_again: None,
            missed: None,
        }
    }

    /// Begins what is to be under way: a look where it is time, a read unless something older comes first.
    fn begin(&mut self, room: usize) {
        let now = Instant::now();
        let misses = self.missed.as_ref().is_some_and(|missed| now >= missed.next);
        if self.tending.is_none() && misses && self.reading.is_none() {
            let shared = Arc::clone(&self.shared);
            self.tending = Some((now, Box::pin(async move { shared.missed(room).await })));
        }
        if self.tending.is_none() {
            let due = self.shared.wake.take_due(now) || !self.woken_by.is_empty();
            if due || self.first || now >= self.next_look {
                self.first |= due;
                let shared = Arc::clone(&self.shared);
                let woken_by = std::mem::take(&mut self.woken_by);
                self.tending = Some((now, Box::pin(async move { shared.tend(room, woken_by).await })));
            }
        }
        if self.reading.is_some() || self.connecting.is_some() || self.first || misses {
            return;
        }
        if let Some(link) = &self.link {
            let count = room
                .min(READ_BYTES / self.largest.max(1))
                .min(ANSWER / (ENTRY + self.typical))
                .max(1);
            let link = Arc::clone(link);
            let values = self.shared.read_values(count);
            let deadline = self.shared.block() + self.shared.hub.settings().command_timeout;
            let read = async move { link.call("XREADGROUP", values, deadline).await };
            self.reading = Some((now, Box::pin(read)));
        } else {
            let shared = Arc::clone(&self.shared);
            self.connecting = Some(Box::pin(async move {
                shared.hub.own_link(shared.slot, Purpose::Commands).await
            }));
        }
    }

    /// Waits until one of the calls on their way has ended, or it is time to look.
    async fn event(&mut self) -> Event {
        let look = match (&self.tending, self.shared.wake.next()) {
            (Some(_), _) => None,
            (None, Some(due)) => Some(due.min(self.next_look)),
            (None, None) => Some(self.next_look),
        };
        let event = tokio::select! {
            biased;
            (at, tended) = ended(&mut self.tending) => Event::Tended(at, tended),
            (at, read) = ended(&mut self.reading) => Event::Read(at, read),
            linked = connected(&mut self.connecting) => Event::Linked(linked),
            () = until(look) => Event::Look,
            () = self.shared.wake.changed() => Event::Look,
        };
        match event {
            Event::Tended(..) => self.tending = None,
            Event::Read(..) => self.reading = None,
            Event::Linked(_) => self.connecting = None,
            Event::Look => {}
        }
        event
    }

    async fn take_in(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Look => Ok(()),
            Event::Linked(link) => {
                self.link = Some(Arc::new(link?));
                Ok(())
            }
            Event::Tended(asked, tended) => {
                let tended = match tended {
                    Ok(tended) if tended.is_missed => {
                        self.shared.tell_gone(tended.gone);
                        self.missed = self
                            .missed
                            .take()
                            .filter(|missed| missed.last > asked)
                            .map(Missed::once_more);
                        return self.keep(Read::tended(tended.entries)?, asked).await;
                    }
                    tended => tended,
                };
                self.next_look = Instant::now() + self.shared.interval();
                self.first = false;
                let tended = match tended {
                    Err(failure) if failure.sign == Sign::NoGroup => return self.make_group_again(failure).await,
                    Err(failure) => {
                        self.miss();
                        return Err(failure);
                    }
                    Ok(tended) => tended,
                };
                if let Some(next) = tended.next {
                    self.shared.wake.due(next);
                }
                self.shared.tell_gone(tended.gone);
                let mut read = Read::tended(tended.entries)?;
                let had = read.without_held(&self.shared);
                if let Err(failure) = self.shared.uncount(&had).await {
                    tracing::debug!(stream = %self.shared.stream, ?failure, "an attempt is counted that was none");
                }
                self.keep(read, asked).await
            }
            Event::Read(asked, answer) => {
                let answer = match answer {
                    Ok(answer) => answer,
                    Err(failure) if failure.sign == Sign::NoGroup => return self.make_group_again(failure).await,
                    Err(failure) => {
                        self.lose_link(&failure);
                        self.miss();
                        return Err(failure);
                    }
                };
                let mut read = Read::new(answer, &self.shared)?;
                self.woken_by.append(&mut read.woken_by);
                if let Some(last) = read.last() {
                    self.last_read = last;
                }
                self.keep(read, asked).await
            }
        }
    }

    /// Puts what came aside to be handed out. What has lain here for long may be someone else's by now.
    async fn keep(&mut self, mut read: Read, asked: Instant) -> Result<(), Failure> {
        if read.len() == 0 {
            return Ok(());
        }
        let mut since = asked;
        if self.shared.may_be_lost(asked, Instant::now()) {
            since = Instant::now();
            match self.shared.renew(&read.ids()).await {
                Ok(lost) => read.without(&lost),
                // Not handed out: it comes again to whoever finds it.
                Err(failure) => return Err(failure),
            }
            if read.len() == 0 {
                return Ok(());
            }
        }
        // It forgets a large one slowly.
        self.typical = usize::midpoint(self.typical, read.bytes() / read.len());
        self.largest = read.largest().max(self.largest - self.largest / 8);
        self.rest.extend(read.into_deliveries(&self.shared, since));
        Ok(())
    }

    /// The server lost the group: it was restarted without its data, flushed, or someone destroyed it.
    async fn make_group_again(&mut self, failure: Failure) -> Result<(), Failure> {
        let now = Instant::now();
        if self
            .made_again
            .is_some_and(|at| now.saturating_duration_since(at) < LOST_AGAIN)
        {
            return Err(failure);
        }
        self.made_again = Some(now);
        let position = self.shared.position(self.last_read);
        self.last_read = self.shared.make_groups(Some(position)).await?;
        tracing::warn!(
            stream = %self.shared.stream, group = %self.shared.group, position = %self.last_read,
            "the server had lost the consumer group; it is made again"
        );
        Ok(())
    }

    /// An answer was lost.
    fn miss(&mut self) {
        let now = Instant::now();
        let last = now + self.shared.block() + self.shared.interval();
        self.missed = Some(Missed { next: now, last });
    }

    fn lose_link(&mut self, failure: &Failure) {
        if let Some(link) = self.link.take() {
            if matches!(failure.sign, Sign::Elsewhere | Sign::Ask(_)) {
                self.shared.hub.forget(&link);
            }
            link.give_up();
        }
    }

    fn hand_out(&mut self, room: usize, into: &mut Vec<StreamDelivery>) {
        for _ in 0..room {
            // What was lost while it waited here is for others to handle.
            match self.rest.pop_front() {
                Some(delivery) if delivery.held.is_lost() => {}
                Some(delivery) => into.push(delivery),
                None => break,
            }
        }
    }

    /// Ends the read that waits, and takes what it brought after all.
    async fn end_read(&mut self) -> Result<(), Failure> {
        let most = self.shared.hub.settings().command_timeout;
        if let Some((asked, reading)) = self.reading.take() {
            let read = match timeout(most, unblock(Arc::clone(&self.shared), self.link.clone(), reading)).await {
                Ok(read) => read,
                Err(_) => Err(Failure::link_lost(
                    ErrorKind::Timeout,
                    "a read could not be ended in time; what it brings is delivered again when its lease ends",
                )),
            };
            self.take_in(Event::Read(asked, read)).await?;
        }
        if let Some((asked, tending)) = self.tending.take() {
            let tended = timeout(most, tending).await.unwrap_or_else(|_| {
                Err(Failure::link_lost(
                    ErrorKind::Timeout,
                    "the server did not answer in time",
                ))
            });
            self.take_in(Event::Tended(asked, tended)).await?;
        }
        Ok(())
    }
}

impl Missed {
    fn once_more(self) -> Self {
        Self {
            next: self.last,
            ..self
        }
    }
}

impl Fetch for StreamFetch {
    type Delivery = StreamDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<StreamDelivery>) -> Result<(), TransportError> {
        let before = into.len();
        loop {
            self.hand_out(room.max(1), into);
            if into.len() > before {
                return Ok(());
            }
            self.begin(room.max(1));
            let event = self.event().await;
            self.take_in(event).await?;
        }
    }

    async fn recover(&mut self) -> Result<(), TransportError> {
        self.shared.hub.link(self.shared.slot).await?;
        if self.link.as_ref().is_none_or(|link| link.is_broken()) {
            self.link = Some(Arc::new(
                self.shared.hub.own_link(self.shared.slot, Purpose::Commands).await?,
            ));
        }
        Ok(())
    }

    async fn close(mut self) -> Result<(), TransportError> {
        let ended = self.end_read().await;
        let back: Vec<Settlement> = self
            .rest
            .drain(..)
            .filter(|delivery| !delivery.held.is_lost())
            .map(|delivery| Settlement {
                id: delivery.held.id().clone(),
                what: What::Release,
            })
            .collect();
        if !back.is_empty() {
            self.shared.settle(&back, |_| {}).await?;
        }
        Ok(ended?)
    }
}

impl fmt::Debug for StreamFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamFetch")
            .field("stream", &self.shared.stream)
            .field("group", &self.shared.group)
            .field("waiting", &self.reading.is_some())
            .finish_non_exhaustive()
    }
}

/// Tells the server to end a read; again and again, since the first word may come before the read has begun to wait.
async fn unblock(shared: Arc<Shared>, link: Option<Arc<Link>>, mut reading: Call<Frame>) -> Result<Frame, Failure> {
    let most = shared.hub.settings().command_timeout;
    let Some(link) = link else { return reading.await };
    loop {
        let other = shared.hub.link(shared.slot).await?;
        if other.node() != link.node() {
            return reading.await;
        }
        let words = vec!["UNBLOCK".into(), link.id().into()];
        other.call("CLIENT", words, most).await?;
        if let Ok(read) = timeout(UNBLOCK_AGAIN, &mut reading).await {
            return read;
        }
    }
}

async fn ended<T>(call: &mut Option<(Instant, Call<T>)>) -> (Instant, Result<T, Failure>) {
    match call {
        Some((at, call)) => (*at, call.await),
        None => pending().await,
    }
}

async fn connected(call: &mut Option<Call<Link>>) -> Result<Link, Failure> {
    match call {
        Some(call) => call.await,
        None => pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

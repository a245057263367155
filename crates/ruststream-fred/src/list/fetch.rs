//! The half of a subscription that takes messages from a list.

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fred::interfaces::Resp3Frame as Frame;
use ruststream::transport::{Fetch, TransportError};
use tokio::time::{Instant, sleep_until, timeout};

use crate::beside::{Beside, Claimed, ItemDelivery, Kind, released};
use crate::error::{Failure, Sign};
use crate::lease::{Chunk, Held};
use crate::link::{Heard, Link, Purpose};
use fred::types::Value;
use ruststream::transport::Delivery as _;

/// A claim is made so small that it brings about this many bytes at most, going by the largest payload seen of late.
const CLAIM_BYTES: usize = 32 * 1024 * 1024;

/// What a payload may be like before the first is seen.
const UNKNOWN_PAYLOAD: usize = 64 * 1024;

/// About how many bytes a claim is to bring; see the reads of streams.
const ANSWER: usize = 64 * 1024;

/// The longest time that a wait lasts in the server; a link that is dead is found out soon after.
const BLOCK: Duration = Duration::from_secs(2);

type Call<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Takes messages from a list.
pub struct ListFetch {
    beside: Arc<Beside>,
    /// What waits go by, and what is heard on it.
    link: Option<(Arc<Link>, Heard)>,
    /// Calls on their way: kept here so that a `fetch` which is dropped loses nothing.
    connecting: Option<Call<(Link, Heard)>>,
    waiting: Option<Call<Frame>>,
    claiming: Option<(Instant, Call<Claimed>)>,
    /// There may be something to claim.
    ready: bool,
    next_look: Instant,
    /// Claimed and not handed out, because the room had become smaller.
    rest: VecDeque<ItemDelivery>,
    /// The largest payload seen of late.
    largest: usize,
    /// The size of a payload, on the average of late.
    typical: usize,
}

enum Event {
    Linked(Result<(Link, Heard), Failure>),
    Waited(Result<Frame, Failure>),
    Claimed(Instant, Result<Claimed, Failure>),
    Rung,
    Look,
}

impl ListFetch {
    pub(super) fn new(beside: Arc<Beside>) -> Self {
        Self {
            beside,
            link: None,
            connecting: None,
            waiting: None,
            claiming: None,
            ready: true,
            next_look: Instant::now(),
            rest: VecDeque::new(),
            largest: UNKNOWN_PAYLOAD,
            typical: 512,
        }
    }

    fn begin(&mut self, room: usize) {
        let now = Instant::now();
        if self.claiming.is_none() {
            self.ready |= self.beside.wake.take_due(now) || now >= self.next_look;
            if self.ready {
                let room = room
                    .min(CLAIM_BYTES / self.largest.max(1))
                    .min(ANSWER / (24 + self.typical))
                    .max(1);
                let beside = Arc::clone(&self.beside);
                self.claiming = Some((now, Box::pin(async move { beside.claim(room).await })));
                // Said before it is asked: what comes while it is under way is claimed by the next.
                self.ready = false;
            }
        }
        // While claims bring something nobody has to wait.
        if self.claiming.is_some() || self.waiting.is_some() || self.connecting.is_some() {
            return;
        }
        if let Some((link, _)) = &self.link {
            let link = Arc::clone(link);
            let list = &*self.beside.name;
            // An element that is moved to where it was: it waits for one and changes nothing.
            let values: Vec<Value> = vec![
                list.into(),
                list.into(),
                "RIGHT".into(),
                "RIGHT".into(),
                BLOCK.as_secs_f64().to_string().into(),
            ];
            let deadline = BLOCK + self.beside.hub.settings().command_timeout;
            let wait = async move { link.call("BLMOVE", values, deadline).await };
            self.waiting = Some(Box::pin(wait));
        } else {
            let beside = Arc::clone(&self.beside);
            self.connecting = Some(Box::pin(async move {
                let link = beside.hub.own_link(beside.slot, Purpose::Both).await?;
                let heard = link.listen(&beside.bell, beside.hub.settings().command_timeout).await?;
                Ok((link, heard))
            }));
        }
    }

    async fn event(&mut self) -> Event {
        let look = match (&self.claiming, self.beside.wake.next()) {
            (Some(_), _) => None,
            (None, Some(due)) => Some(due.min(self.next_look)),
            (None, None) => Some(self.next_look),
        };
        let event = tokio::select! {
            biased;
            (at, claimed) = claimed(&mut self.claiming) => Event::Claimed(at, claimed),
            waited = ended(&mut self.waiting) => Event::Waited(waited),
            linked = ended(&mut self.connecting) => Event::Linked(linked),
            () = rung(&mut self.link) => Event::Rung,
            () = until(look) => Event::Look,
            () = self.beside.wake.changed() => Event::Look,
        };
        match event {
            Event::Claimed(..) => self.claiming = None,
            Event::Waited(_) => self.waiting = None,
            Event::Linked(_) => self.connecting = None,
            Event::Rung | Event::Look => {}
        }
        event
    }

    async fn take_in(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Look => Ok(()),
            Event::Rung => {
                self.ready = true;
                Ok(())
            }
            Event::Linked(linked) => {
                let (link, heard) = linked?;
                self.link = Some((Arc::new(link), heard));
                // What came while nobody listened.
                self.ready = true;
                Ok(())
            }
            Event::Waited(Ok(answer)) => {
                self.ready |= !matches!(answer, Frame::Null);
                Ok(())
            }
            Event::Waited(Err(failure)) => {
                if let Some((link, _)) = self.link.take() {
                    if matches!(failure.sign, Sign::Elsewhere | Sign::Ask(_)) {
                        self.beside.hub.forget(&link);
                    }
                    link.give_up();
                }
                Err(failure)
            }
            Event::Claimed(asked, claimed) => {
                self.next_look = Instant::now() + self.beside.interval();
                let claimed = claimed.inspect_err(|_| self.ready = true)?;
                if let Some(next) = claimed.next {
                    self.beside.wake.due(next);
                }
                self.ready |= !claimed.entries.is_empty();
                self.keep(claimed, asked).await
            }
        }
    }

    async fn keep(&mut self, mut claimed: Claimed, asked: Instant) -> Result<(), Failure> {
        let beside = &self.beside;
        if beside.kind != Kind::Reliable {
            let given = claimed.entries.into_iter();
            self.rest
                .extend(given.map(|(name, value)| ItemDelivery::given(beside, name, value)));
            return Ok(());
        }
        let now = Instant::now();
        let mut since = asked;
        if now.saturating_duration_since(asked) > beside.lease / 2 {
            // It lay here for so long that others may have taken it for an orphan.
            since = now;
            let names: Vec<_> = claimed.entries.iter().map(|(name, _)| name.clone()).collect();
            let lost = beside.renew(&names).await?;
            let mut position = 0;
            claimed.entries.retain(|_| {
                position += 1;
                lost.binary_search(&(position - 1)).is_err()
            });
        }
        if claimed.entries.is_empty() {
            return Ok(());
        }
        let chunk = Chunk::new(claimed.entries.iter().map(|(name, _)| name.clone()).collect(), since);
        beside.book.enter(&chunk);
        let count = claimed.entries.len();
        let (mut bytes, mut largest) = (0, 0);
        for (index, (name, value)) in claimed.entries.into_iter().enumerate() {
            let unfinished = claimed.orphans.contains(&name);
            let held = Held::new(Arc::clone(&chunk), index);
            let delivery = ItemDelivery::held(beside, &value, unfinished, held);
            bytes += delivery.size();
            largest = largest.max(delivery.size());
            self.rest.push_back(delivery);
        }
        // It forgets a large one slowly.
        self.largest = largest.max(self.largest - self.largest / 8);
        self.typical = usize::midpoint(self.typical, bytes / count);
        Ok(())
    }

    fn hand_out(&mut self, room: usize, into: &mut Vec<ItemDelivery>) {
        for _ in 0..room {
            // What was lost while it waited here is for others to handle.
            match self.rest.pop_front() {
                Some(delivery) if delivery.is_lost() => {}
                Some(delivery) => into.push(delivery),
                None => break,
            }
        }
    }
}

impl Fetch for ListFetch {
    type Delivery = ItemDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<ItemDelivery>) -> Result<(), TransportError> {
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
        self.beside.hub.link(self.beside.slot).await?;
        self.ready = true;
        Ok(())
    }

    async fn close(mut self) -> Result<(), TransportError> {
        // A wait that is cut off has changed nothing.
        self.waiting = None;
        let mut outcome = Ok(());
        if let Some((asked, claiming)) = self.claiming.take() {
            let most = self.beside.hub.settings().command_timeout;
            if let Ok(claimed) = timeout(most, claiming).await {
                outcome = self.take_in(Event::Claimed(asked, claimed)).await;
            }
        }
        let back: Vec<_> = self
            .rest
            .drain(..)
            .filter(|delivery| !delivery.is_lost())
            .map(|delivery| released(delivery.into_receipt()))
            .collect();
        if !back.is_empty() {
            self.beside.settle(&back, |_| {}).await?;
        }
        Ok(outcome?)
    }
}

impl fmt::Debug for ListFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListFetch")
            .field("list", &self.beside.name)
            .finish_non_exhaustive()
    }
}

async fn claimed(call: &mut Option<(Instant, Call<Claimed>)>) -> (Instant, Result<Claimed, Failure>) {
    match call {
        Some((at, call)) => (*at, call.await),
        None => pending().await,
    }
}

async fn ended<T>(call: &mut Option<Call<T>>) -> Result<T, Failure> {
    match call {
        Some(call) => call.await,
        None => pending().await,
    }
}

async fn rung(link: &mut Option<(Arc<Link>, Heard)>) {
    match link {
        Some((_, heard)) => heard.rung().await,
        None => pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

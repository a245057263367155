//! The half of a subscription that takes messages from a channel.

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ruststream::transport::{Delivery as _, ErrorKind, Fetch, TransportError};
use tokio::time::{Instant, sleep_until, timeout};

use crate::beside::{Beside, Claimed, ItemDelivery, Kind, released};
use crate::error::Failure;
use crate::link::{Heard, Link, News, Purpose};

/// A link that was silent for so long is asked whether it lives.
const SILENCE: Duration = Duration::from_secs(2);

/// Dropped messages are told of at most this often.
const TELL: Duration = Duration::from_secs(1);

type Call<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Takes messages from a channel.
pub struct ChannelFetch {
    beside: Arc<Beside>,
    buffer: usize,
    link: Option<(Arc<Link>, Heard)>,
    /// Calls on their way: kept here so that a `fetch` which is dropped loses nothing.
    pinging: Option<Call<()>>,
    claiming: Option<Call<Claimed>>,
    next_look: Instant,
    next_ping: Instant,
    /// Kept back by the server and due now; not handed out yet.
    rest: VecDeque<ItemDelivery>,
    dropped: Arc<AtomicU64>,
    untold: u64,
    told: Option<Instant>,
}

enum Event {
    News(News),
    Pinged(Result<(), Failure>),
    Claimed(Result<Claimed, Failure>),
    Look,
}

impl ChannelFetch {
    pub(super) async fn open(beside: Arc<Beside>, buffer: usize, dropped: Arc<AtomicU64>) -> Result<Self, Failure> {
        let now = Instant::now();
        let mut fetch = Self {
            beside,
            buffer,
            link: None,
            pinging: None,
            claiming: None,
            next_look: now,
            next_ping: now + SILENCE,
            rest: VecDeque::new(),
            dropped,
            untold: 0,
            told: None,
        };
        fetch.subscribe().await?;
        Ok(fetch)
    }

    /// A new link, and the subscription on it. What is published meanwhile is missed.
    async fn subscribe(&mut self) -> Result<(), Failure> {
        self.link = None;
        self.pinging = None;
        let beside = &self.beside;
        let most = beside.hub.settings().command_timeout;
        let link = Box::pin(beside.hub.own_link(beside.slot, Purpose::Channels(self.buffer))).await?;
        let mut heard = link.hears();
        link.subscribe(beside.kind, &beside.name, most).await?;
        if beside.kind != Kind::Pattern {
            // That something is kept back is news of another kind on the same link.
            link.subscribe(Kind::Channel, &beside.bell, most).await?;
            heard.expect_bell(&beside.bell);
        }
        self.link = Some((Arc::new(link), heard));
        self.next_ping = Instant::now() + SILENCE;
        self.next_look = Instant::now();
        Ok(())
    }

    fn begin(&mut self, room: usize) {
        let now = Instant::now();
        if self.claiming.is_none() && (self.beside.wake.take_due(now) || now >= self.next_look) {
            let beside = Arc::clone(&self.beside);
            self.claiming = Some(Box::pin(async move { beside.claim(room).await }));
        }
        if self.pinging.is_none()
            && now >= self.next_ping
            && let Some((link, _)) = &self.link
        {
            let link = Arc::clone(link);
            let most = self.beside.hub.settings().command_timeout;
            self.pinging = Some(Box::pin(
                async move { link.call("PING", Vec::new(), most).await.map(drop) },
            ));
        }
    }

    async fn event(&mut self) -> Event {
        let mut next = if self.claiming.is_some() {
            None
        } else {
            Some(
                self.beside
                    .wake
                    .next()
                    .map_or(self.next_look, |due| due.min(self.next_look)),
            )
        };
        if self.pinging.is_none() {
            next = Some(next.map_or(self.next_ping, |next| next.min(self.next_ping)));
        }
        let event = tokio::select! {
            biased;
            news = heard(&mut self.link) => Event::News(news),
            claimed = ended(&mut self.claiming) => Event::Claimed(claimed),
            pinged = ended(&mut self.pinging) => Event::Pinged(pinged),
            () = until(next) => Event::Look,
            () = self.beside.wake.changed() => Event::Look,
        };
        match event {
            Event::Claimed(_) => self.claiming = None,
            Event::Pinged(_) => self.pinging = None,
            Event::News(_) | Event::Look => {}
        }
        event
    }

    fn take_in(&mut self, event: Event, room: usize, into: &mut Vec<ItemDelivery>) -> Result<(), Failure> {
        match event {
            Event::Look => {}
            Event::News(news) => self.take_news(news, room, into)?,
            Event::Pinged(Ok(())) => self.next_ping = Instant::now() + SILENCE,
            Event::Pinged(Err(failure)) => {
                self.link = None;
                return Err(failure);
            }
            Event::Claimed(claimed) => {
                self.next_look = Instant::now() + self.beside.interval();
                let claimed = claimed?;
                if let Some(next) = claimed.next {
                    self.beside.wake.due(next);
                }
                let beside = &self.beside;
                let given = claimed.entries.into_iter();
                self.rest
                    .extend(given.map(|(number, value)| ItemDelivery::given(beside, number, value)));
            }
        }
        Ok(())
    }

    /// Takes what was heard first, and all that is there besides, up to the room.
    fn take_news(&mut self, news: News, room: usize, into: &mut Vec<ItemDelivery>) -> Result<(), Failure> {
        let mut next = Some(news);
        let mut left = room;
        while let Some(news) = next {
            match news {
                News::Message { channel, value } => {
                    into.push(ItemDelivery::told(&self.beside, channel, value));
                    left -= 1;
                }
                News::Bell => self.beside.wake.due(Duration::ZERO),
                News::Dropped(count) => self.count_dropped(count),
                News::Over => {
                    self.link = None;
                    return Err(Failure::link_lost(
                        ErrorKind::Unavailable,
                        format!(
                            "the link that listened to {} was cut; a new one is made",
                            self.beside.name
                        ),
                    ));
                }
            }
            if left == 0 {
                break;
            }
            next = self.link.as_mut().and_then(|(_, heard)| heard.try_next());
        }
        Ok(())
    }

    fn count_dropped(&mut self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        self.untold += count;
        let now = Instant::now();
        if self.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL) {
            tracing::warn!(
                channel = %self.beside.name, dropped = self.untold,
                "the consumer is slower than the channel: the oldest messages were dropped; raise `.buffer(..)` or add workers"
            );
            self.untold = 0;
            self.told = Some(now);
        }
    }
}

impl Fetch for ChannelFetch {
    type Delivery = ItemDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<ItemDelivery>) -> Result<(), TransportError> {
        let room = room.max(1);
        let before = into.len();
        if self.link.is_none() {
            Box::pin(self.subscribe()).await?;
        }
        loop {
            let count = room.min(self.rest.len());
            into.extend(self.rest.drain(..count));
            if into.len() > before {
                return Ok(());
            }
            self.begin(room);
            let event = self.event().await;
            self.take_in(event, room, into)?;
        }
    }

    async fn recover(&mut self) -> Result<(), TransportError> {
        if self.link.is_none() {
            return Ok(Box::pin(self.subscribe()).await?);
        }
        // What failed is the look for what was kept back. The subscription stands, and what it has heard would be lost with it.
        let beside = Arc::clone(&self.beside);
        let claiming = self
            .claiming
            .get_or_insert_with(|| Box::pin(async move { beside.claim(1).await }));
        let claimed = claiming.await;
        self.claiming = None;
        Ok(self.take_in(Event::Claimed(claimed), 0, &mut Vec::new())?)
    }

    async fn close(mut self) -> Result<(), TransportError> {
        self.link = None;
        if let Some(claiming) = self.claiming.take() {
            let most = self.beside.hub.settings().command_timeout;
            if let Ok(claimed) = timeout(most, claiming).await {
                self.take_in(Event::Claimed(claimed), 0, &mut Vec::new())?;
            }
        }
        let back: Vec<_> = self
            .rest
            .drain(..)
            .map(|delivery| released(delivery.into_receipt()))
            .collect();
        if !back.is_empty() {
            self.beside.settle(&back, |_| {}).await?;
        }
        Ok(())
    }
}

impl fmt::Debug for ChannelFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelFetch")
            .field("channel", &self.beside.name)
            .finish_non_exhaustive()
    }
}

async fn heard(link: &mut Option<(Arc<Link>, Heard)>) -> News {
    match link {
        Some((_, heard)) => heard.next().await,
        None => pending().await,
    }
}

async fn ended<T>(call: &mut Option<Call<T>>) -> Result<T, Failure> {
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

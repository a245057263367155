//! The half of a subscription that takes deliveries.
//!
//! Whatever has to be driven to its end once it is begun (opening a session, another window, copies) runs in a task of its own,
//! since a fetch may be dropped at any point.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use lapin::Consumer;
use lapin::options::{BasicCancelOptions, BasicNackOptions};
use ruststream::transport::{ErrorKind, Fetch, TransportError};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::beside::LapinTransaction;
use crate::delivery::{Message, QueueDelivery};
use crate::error;
use crate::link::Link;
use crate::outbox::Letter;
use crate::queue::QueueType;
use crate::session::{Attempts, Session, Subscription};
use crate::stream::Left;

/// How many fetches in a row have to ask for a little more than the window before it is widened.
const TIGHT: u32 = 8;
/// How soon one has to come back to be waiting for the server.
const QUICK: Duration = Duration::from_millis(1);
/// The widest window that is not asked for.
const MOST_SPARE: u16 = 256;
/// The most consumers that make up one window.
const MOST_CONSUMERS: usize = 16;
/// How long nothing has to come to show that nothing is on its way.
const QUIET: Duration = Duration::from_millis(30);
/// How long copies that could not be stored wait until they are tried again.
const COPY_AGAIN: Duration = Duration::from_millis(500);

type Task<T> = JoinHandle<Result<T, TransportError>>;

/// Takes deliveries from a queue.
///
/// The server sends ahead as many as the runtime has asked for, by the prefetch of the consumer.
pub struct QueueFetch {
    subscription: Arc<Subscription>,
    current: Option<Current>,
    opening: Option<Task<(Arc<Session>, Consumer)>>,
    /// How many messages the server sends ahead of their acks.
    window: u16,
    tight: u32,
    /// When the last deliveries were handed on.
    handed_on: Instant,
    /// How many fetches in a row came right after the one before, and had to wait all the same.
    waited: u32,
    /// What came again from a queue that does not count: copies with the count are made of it, and come in its place.
    #[allow(
        clippy::vec_box,
        reason = "a message is boxed once, and its box goes on to its receipt"
    )]
    suspects: Vec<Box<Message>>,
    counting: JoinSet<()>,
    /// What a lost link had brought and no one was given, by fingerprint: it comes again, and was not attempted.
    innocent: HashMap<u64, u32>,
    /// What a lost session of a stream has left.
    left: Left,
}

/// A session and its consumers.
///
/// The prefetch of a consumer is set when it begins, and to end one is no way to change it: what a quorum queue has on the way to
/// it then counts as attempted. So the window is widened by one consumer more.
struct Current {
    session: Arc<Session>,
    consumers: Vec<Consumer>,
    /// One more consumer, on its way.
    more: Option<Task<Consumer>>,
    /// The number of the delivery that is next. The server numbers those of all consumers in one row, and has served one that is on its
    /// way here already.
    next: u64,
    ahead: BTreeMap<u64, lapin::message::Delivery>,
}

impl QueueFetch {
    pub(crate) async fn open(subscription: Arc<Subscription>) -> Result<Self, TransportError> {
        let narrow = match subscription.spec.queue_type {
            // A second consumer would get all messages once more.
            QueueType::Stream => MOST_SPARE,
            _ => 1,
        };
        let window = subscription.spec.prefetch.unwrap_or(narrow);
        let mut fetch = Self {
            subscription,
            current: None,
            opening: None,
            window,
            tight: 0,
            handed_on: Instant::now(),
            waited: 0,
            suspects: Vec::new(),
            counting: JoinSet::new(),
            innocent: HashMap::new(),
            left: Left::default(),
        };
        fetch.ensure_open().await?;
        Ok(fetch)
    }

    /// Opens a session if there is none.
    async fn ensure_open(&mut self) -> Result<(), TransportError> {
        if self.current.as_ref().is_some_and(|current| current.session.stands()) {
            return Ok(());
        }
        self.lose();
        let opening = self.opening.get_or_insert_with(|| {
            let (subscription, window, place) = (self.subscription.clone(), self.window, self.left.place);
            tokio::spawn(async move { subscription.open(window, place).await })
        });
        let opened = opening.await;
        self.opening = None;
        let (session, consumer) = opened.map_err(|error| ended("opening a subscription", error))??;
        tokio::spawn(session.clone().tell_late());
        if session
            .reading
            .as_ref()
            .is_some_and(|reading| reading.position.is_some())
        {
            tokio::spawn(session.clone().keep_places(self.subscription.outbox.clone()));
        }
        self.subscription.enter(session.clone());
        self.current = Some(Current {
            session,
            consumers: vec![consumer],
            more: None,
            next: 1,
            ahead: BTreeMap::new(),
        });
        Ok(())
    }

    /// Lets go of a session that is lost, and notes what it had brought and no one was given.
    fn lose(&mut self) {
        let Some(mut current) = self.current.take() else { return };
        self.subscription.leave();
        self.innocent.clear();
        if let Some(reading) = &current.session.reading {
            let left = reading.left(&current.session.book());
            if left.place.is_some() {
                self.left = left;
            }
            return;
        }
        let buffered = current.consumers.iter_mut().flat_map(|consumer| {
            std::iter::from_fn(|| consumer.next().now_or_never().flatten())
                .filter_map(Result::ok)
                .collect::<Vec<_>>()
        });
        for delivery in buffered.chain(current.ahead.into_values()) {
            let message = Message::new(0, delivery);
            *self.innocent.entry(message.fingerprint()).or_default() += 1;
        }
    }

    /// Widens the window to what is in hand and asked for.
    fn fit(&mut self, room: usize) {
        let Some(current) = &mut self.current else { return };
        let Session { reading, no_acks, .. } = &*current.session;
        let is_fixed = self.subscription.spec.prefetch.is_some() || reading.is_some() || *no_acks;
        if is_fixed || current.more.is_some() || current.consumers.len() >= MOST_CONSUMERS {
            return;
        }
        let in_hand = current.session.book().open();
        let needed = u16::try_from(in_hand + room).unwrap_or(u16::MAX);
        self.tight = if needed > self.window { self.tight + 1 } else { 0 };
        let wider = if needed <= self.window {
            // Who takes little at a time, and is through with it at once, waits for the way to the server and back each time.
            if self.waited <= TIGHT || self.window >= MOST_SPARE {
                return;
            }
            self.window
        } else if in_hand >= usize::from(self.window) {
            // Nothing more comes until something is settled, and what is in hand may wait for what has yet to come.
            (needed - self.window).max(self.window)
        } else if needed / 2 >= self.window || self.tight > TIGHT {
            needed - self.window
        } else {
            return;
        };
        self.window = self.window.saturating_add(wider);
        (self.tight, self.waited) = (0, 0);
        let (subscription, session) = (self.subscription.clone(), current.session.clone());
        current.more = Some(tokio::spawn(async move {
            let Subscription { spec, outbox, .. } = &*subscription;
            let Session {
                live, channel, queue, ..
            } = &*session;
            spec.consume(outbox, live, channel, queue, wider, None).await
        }));
    }

    /// Takes what is there.
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        room: usize,
        into: &mut Vec<QueueDelivery>,
    ) -> Poll<Result<(), TransportError>> {
        let Some(current) = &mut self.current else {
            return Poll::Ready(Err(self.cancelled()));
        };
        let epoch = current.session.epoch;
        let (first, first_suspect) = (into.len(), self.suspects.len());
        if let Some(reading) = &current.session.reading {
            reading.poll_returned(context, room, into);
        }
        let first_new = into.len();
        let mut trouble = None;
        let mut unwanted = Vec::new();
        while into.len() - first < room {
            match current.poll_next(context) {
                Poll::Ready(Some(Ok(delivery))) => {
                    let mut message = Box::new(Message::new(epoch, delivery));
                    if current.session.transactions.is_some() {
                        let settings = self.subscription.outbox.settings.clone();
                        message.fields.transaction = Some(LapinTransaction::new(settings));
                    }
                    if current.session.no_acks {
                        let Subscription { spec, outbox, .. } = &*self.subscription;
                        outbox.replies.answered(&spec.name, message.fields.properties());
                    }
                    if let Some(reading) = &current.session.reading {
                        let wanted = self.left.comes_again(&mut message);
                        if reading.deliver(&message) && wanted {
                            into.push(QueueDelivery { message });
                        } else {
                            unwanted.push(message.fields.tag);
                        }
                    } else if message.is_uncounted() && !is_innocent(&mut self.innocent, &message) {
                        self.suspects.push(message);
                    } else {
                        into.push(QueueDelivery { message });
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    trouble = Some(error);
                    break;
                }
                Poll::Ready(None) => {
                    let spec = &self.subscription.spec;
                    trouble = Some(TransportError::new(
                        ErrorKind::Unavailable,
                        format!(
                            "the server ended the consumer of queue `{}`: the queue was deleted, or moves",
                            spec.name
                        ),
                    ));
                    break;
                }
                Poll::Pending => break,
            }
        }
        if into.len() > first_new || self.suspects.len() > first_suspect {
            let mut book = current.session.book();
            let taken = into[first_new..].iter().map(|delivery| &delivery.message);
            for message in taken.chain(&self.suspects[first_suspect..]) {
                book.deliver(message.fields.tag);
            }
        }
        if !unwanted.is_empty() {
            let mut book = current.session.book();
            for tag in unwanted {
                book.deliver(tag);
                book.ack(tag);
            }
            drop(book);
            current.session.tell_soon();
        }
        self.count_suspects();
        match trouble {
            Some(error) => {
                self.lose();
                Poll::Ready(Err(error))
            }
            None if into.len() > first => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }

    /// Puts copies with their count in the place of what came again.
    fn count_suspects(&mut self) {
        let Some(current) = self.current.as_ref().filter(|_| !self.suspects.is_empty()) else {
            return;
        };
        let counted: Vec<_> = self.suspects.drain(..).map(counted).collect();
        let (subscription, session) = (self.subscription.clone(), current.session.clone());
        while self.counting.try_join_next().is_some() {}
        self.counting.spawn(async move {
            let mut left = counted;
            loop {
                left = copy_into_queue(&subscription, &session, left).await;
                if left.is_empty() || !session.stands() {
                    return;
                }
                sleep(COPY_AGAIN).await;
            }
        });
    }

    fn cancelled(&self) -> TransportError {
        let name = &self.subscription.spec.name;
        TransportError::new(ErrorKind::Unavailable, format!("queue `{name}` is not being consumed"))
    }
}

impl Current {
    /// The next delivery of all consumers, in the order in which the server sent them.
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<lapin::message::Delivery, TransportError>>> {
        if let Some(more) = &mut self.more
            && let Poll::Ready(answer) = more.poll_unpin(context)
        {
            self.more = None;
            match answer.unwrap_or_else(|error| Err(ended("widening a window", error))) {
                Ok(consumer) => self.consumers.push(consumer),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        loop {
            if !self.ahead.is_empty()
                && let Some(delivery) = self.ahead.remove(&self.next)
            {
                self.next += 1;
                return Poll::Ready(Some(Ok(delivery)));
            }
            let mut came = false;
            for consumer in &mut self.consumers {
                let Poll::Ready(polled) = Pin::new(consumer).poll_next(context) else {
                    continue;
                };
                match polled.map(consumed) {
                    Some(Ok(mut delivery)) if delivery.delivery_tag == self.next || self.session.no_acks => {
                        // The server does not number replies.
                        delivery.delivery_tag = self.next;
                        self.next += 1;
                        return Poll::Ready(Some(Ok(delivery)));
                    }
                    Some(Ok(delivery)) => {
                        self.ahead.insert(delivery.delivery_tag, delivery);
                        came = true;
                    }
                    other => return Poll::Ready(other),
                }
            }
            if !came {
                return Poll::Pending;
            }
        }
    }

    /// Ends the consumers, and takes what they still bring: in the end nothing is on its way any more.
    async fn end(&mut self, link: &Link, quorum: bool, window: u16) -> Vec<Box<Message>> {
        let session = self.session.clone();
        let mut back = Vec::new();
        let mut take = |delivery: lapin::message::Delivery| {
            session.book().deliver(delivery.delivery_tag);
            back.push(Box::new(Message::new(session.epoch, delivery)));
        };
        if let Some(more) = self.more.take()
            && let Ok(Ok(consumer)) = more.await
        {
            self.consumers.push(consumer);
        }
        if quorum {
            // What such a queue has on its way to a consumer that ends would count as attempted. While no ack is told, it sends until
            // the window is full and then nothing.
            session.hold();
            while session.book().unsettled() < usize::from(window)
                && let Ok(Some(Ok(delivery))) = timeout(QUIET, poll_fn(|context| self.poll_next(context))).await
            {
                take(delivery);
            }
        }
        for consumer in &mut self.consumers {
            let options = BasicCancelOptions::default();
            let ending = session.channel.basic_cancel(consumer.tag(), options);
            if link.call(&session.live, "ending a consumer", ending).await.is_err() {
                break;
            }
            while let Some(Ok(delivery)) = consumer.next().await {
                take(delivery);
            }
        }
        std::mem::take(&mut self.ahead).into_values().for_each(take);
        back.sort_by_key(|message| message.fields.tag);
        back
    }
}

fn consumed(polled: lapin::Result<lapin::message::Delivery>) -> Result<lapin::message::Delivery, TransportError> {
    polled.map_err(|error| error::from_lapin(error, "consuming"))
}

/// A redelivery whose attempt has to be counted.
fn counted(message: Box<Message>) -> (Box<Message>, Attempts) {
    let attempts = Attempts {
        made: message.attempt,
        unfinished: true,
    };
    (message, attempts)
}

/// Whether this redelivery is of a message that no one was given.
fn is_innocent(innocent: &mut HashMap<u64, u32>, message: &Message) -> bool {
    if innocent.is_empty() {
        return false;
    }
    let fingerprint = message.fingerprint();
    let Some(count) = innocent.get_mut(&fingerprint) else {
        return false;
    };
    *count -= 1;
    if *count == 0 {
        innocent.remove(&fingerprint);
    }
    true
}

/// Publishes copies into the queue and acks the originals of those that are confirmed; answers the others.
async fn copy_into_queue(
    subscription: &Subscription,
    session: &Session,
    messages: Vec<(Box<Message>, Attempts)>,
) -> Vec<(Box<Message>, Attempts)> {
    let queue = session.queue.as_str();
    let letters: Vec<_> = messages
        .iter()
        .map(|(message, attempts)| Letter::to_queue(queue, message.copy(*attempts, queue), &message.payload))
        .collect();
    let mut failures = subscription.outbox.send(&letters).await;
    drop(letters);
    if let Some((_, error)) = failures.first() {
        tracing::warn!(queue, %error, messages = failures.len(), "messages could not be put back with their attempts");
    }
    failures.sort_by_key(|(place, _)| *place);
    let mut failed = failures.into_iter().map(|(place, _)| place).peekable();
    let mut left = Vec::new();
    {
        let mut book = session.book();
        for (place, message) in messages.into_iter().enumerate() {
            if failed.next_if_eq(&place).is_some() {
                left.push(message);
            } else {
                book.ack(message.0.fields.tag);
            }
        }
    }
    if let Err(error) = session.tell().await {
        tracing::debug!(%error, "acks were lost with their channel");
    }
    left
}

/// A task of this half has panicked, or its runtime ends.
fn ended(what: &str, error: tokio::task::JoinError) -> TransportError {
    TransportError::new(ErrorKind::Unavailable, format!("{what} was ended")).with_cause(error)
}

impl Fetch for QueueFetch {
    type Delivery = QueueDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<QueueDelivery>) -> Result<(), TransportError> {
        self.ensure_open().await?;
        let is_quick = self.handed_on.elapsed() < QUICK;
        self.fit(room);
        let mut waits = false;
        let taken = poll_fn(|context| {
            let polled = self.poll_take(context, room, into);
            waits |= polled.is_pending();
            polled
        })
        .await;
        self.waited = if waits && is_quick { self.waited + 1 } else { 0 };
        self.handed_on = Instant::now();
        taken
    }

    async fn recover(&mut self) -> Result<(), TransportError> {
        self.ensure_open().await
    }

    async fn close(mut self) -> Result<(), TransportError> {
        let deadline = self.subscription.outbox.settings.call_timeout;
        let counting = async { while self.counting.join_next().await.is_some() {} };
        if timeout(deadline, counting).await.is_err() {
            self.counting.abort_all();
        }
        let Some(mut current) = self.current.take().filter(|current| current.session.stands()) else {
            return Ok(());
        };
        let session = current.session.clone();
        let link = &self.subscription.outbox.consuming;
        let quorum = self.subscription.spec.queue_type == QueueType::Quorum;
        let ending = timeout(deadline, current.end(link, quorum, self.window)).await;
        session.go_on();
        if session.reading.is_some() || session.no_acks {
            // What was not handed out is behind the place that is kept; and replies cannot be given back.
            return ending.map(drop).map_err(|_| error::late("ending a consumer", deadline));
        }
        let drained = ending.is_ok();
        let mut back = ending.unwrap_or_default();
        back.append(&mut self.suspects);
        let innocent = &mut self.innocent;
        let given_back = back.into_iter().map(|message| {
            if message.is_uncounted() && !is_innocent(innocent, &message) {
                return counted(message);
            }
            let attempts = Attempts {
                made: message.attempt - 1,
                unfinished: message.is_unfinished(),
            };
            (message, attempts)
        });
        let left = copy_into_queue(&self.subscription, &session, given_back.collect()).await;
        for (message, _) in &left {
            // Better counted than held back until the channel ends.
            let options = BasicNackOptions {
                requeue: true,
                multiple: false,
            };
            let tag = message.fields.tag;
            session.book().told(tag);
            let giving_back = session.channel.basic_nack(tag, options);
            link.call(&session.live, "giving back a message", giving_back).await?;
        }
        if drained {
            Ok(())
        } else {
            Err(error::late("ending a consumer", deadline))
        }
    }
}

impl fmt::Debug for QueueFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueFetch")
            .field("queue", &self.subscription.spec.name)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

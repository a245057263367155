//! One channel of a subscription, from its opening to its loss: what the two halves share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lapin::options::BasicAckOptions;
use lapin::{Channel, Consumer};
use ruststream::transport::TransportError;
use tokio::sync::Notify;

use crate::book::Book;
use crate::delivery::Message;
use crate::link::{Live, next_number};
use crate::outbox::Outbox;
use crate::position::Position;
use crate::properties::{self, own};
use crate::queue::{Declaration, QueueType, Spec};
use crate::replies;
use crate::stream::Reading;

/// How long an ack waits at most for those before it, to be told together with them.
const ACKS_WAIT: Duration = Duration::from_millis(5);

/// How often the place in a stream is kept at most.
const KEEP_EVERY: Duration = Duration::from_millis(100);

/// A subscription: its queue, and the session that it is in.
pub(crate) struct Subscription {
    pub(crate) spec: Arc<Spec>,
    pub(crate) outbox: Arc<Outbox>,
    session: Mutex<Option<Arc<Session>>>,
}

impl Subscription {
    pub(crate) fn new(spec: Arc<Spec>, outbox: Arc<Outbox>) -> Self {
        Self {
            spec,
            outbox,
            session: Mutex::new(None),
        }
    }

    /// The session that receipts can be settled in.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.lock().clone()
    }

    pub(crate) fn enter(&self, session: Arc<Session>) {
        *self.lock() = Some(session);
    }

    pub(crate) fn leave(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a new session, and consumes at most `window` messages ahead; a stream from `place` on, or from where its reader stands.
    pub(crate) async fn open(
        &self,
        window: u16,
        place: Option<u64>,
    ) -> Result<(Arc<Session>, Consumer), TransportError> {
        let Self { spec, outbox, .. } = self;
        let live = outbox.consuming.live().await?;
        let channel = outbox.consuming.channel(&live).await?;
        let queue = spec.declare(&outbox.consuming, &live, &channel).await?;
        if spec.queue_type == QueueType::Quorum && spec.declaration == Declaration::Assert {
            // The server itself puts there what was delivered too often.
            outbox.declare_dead_letters(spec).await?;
        }
        if spec.transactional {
            let selecting = channel.tx_select();
            outbox
                .consuming
                .call(&live, "asking for transactions", selecting)
                .await?;
        }
        let reading = match spec.queue_type {
            QueueType::Stream => {
                let position = match &spec.reader {
                    Some(reader) => Some(Position::take(outbox, &live, &queue, reader).await?),
                    None => None,
                };
                let kept = position.as_ref().and_then(Position::kept);
                Some(Reading::new(kept.max(place), position))
            }
            _ => None,
        };
        let offset = reading.as_ref().map(|reading| reading.begins_at(spec.offset));
        let consumer = spec.consume(outbox, &live, &channel, &queue, window, offset).await?;
        if spec.is_direct_reply() {
            replies::enter(outbox, &live, &channel, &spec.name).await?;
        }
        let session = Arc::new(Session {
            epoch: next_number(),
            queue,
            channel,
            live,
            book: Mutex::default(),
            late: Arc::default(),
            held: AtomicBool::new(false),
            reading,
            no_acks: spec.is_direct_reply(),
            transactions: spec.transactional.then(tokio::sync::Mutex::default),
        });
        Ok((session, consumer))
    }
}

/// One channel. Its number is on every receipt, so that none of another channel is ever settled here, where its tag would be that
/// of another delivery.
pub(crate) struct Session {
    pub(crate) epoch: u64,
    /// The queue that it reads: its name may be the server's choice.
    pub(crate) queue: String,
    pub(crate) channel: Channel,
    pub(crate) live: Arc<Live>,
    book: Mutex<Book>,
    /// Acks have begun to wait behind a gap.
    late: Arc<Notify>,
    /// No ack is told for now.
    held: AtomicBool,
    /// What is known of the stream that it reads, if it is one.
    pub(crate) reading: Option<Reading>,
    /// The server expects no acks, and asks for none again.
    pub(crate) no_acks: bool,
    /// Set where acks are told in transactions; one task at a time fills one.
    pub(crate) transactions: Option<tokio::sync::Mutex<()>>,
}

impl Session {
    /// Tells the server of no ack until it may [go on](Self::go_on).
    pub(crate) fn hold(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    /// Lets acks be told again; those that were held wait for the next.
    pub(crate) fn go_on(&self) {
        self.held.store(false, Ordering::Relaxed);
        self.late.notify_one();
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stands(&self) -> bool {
        self.live.stands() && self.channel.status().connected()
    }

    /// Tells the server of what the book has acked: at once as far as it is contiguous, and the rest soon.
    pub(crate) async fn tell(&self) -> lapin::Result<()> {
        match &self.transactions {
            None => self.tell_run().await,
            Some(alone) => {
                let _alone = alone.lock().await;
                if self.book().waits() {
                    self.commit_acks().await
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Tells the server of all acks and commits them.
    pub(crate) async fn commit_acks(&self) -> lapin::Result<()> {
        self.tell_run().await?;
        self.tell_rest().await?;
        self.channel.tx_commit().await
    }

    async fn tell_run(&self) -> lapin::Result<()> {
        if self.held.load(Ordering::Relaxed) {
            return Ok(());
        }
        let sending = {
            let mut book = self.book();
            let run = book.run().filter(|_| !self.no_acks);
            if let Some(reading) = &self.reading {
                reading.settled(&book);
            }
            if book.waits() {
                self.late.notify_one();
            }
            // The frame is queued when the call is first polled: while the book is locked, since two acks of runs in the wrong order are
            // an unknown tag to the server, which closes the channel over it.
            run.map(|last| {
                let mut ack = Box::pin(self.channel.basic_ack(last, BasicAckOptions { multiple: true }));
                let answer = ack.as_mut().now_or_never();
                (ack, answer)
            })
        };
        match sending {
            None => Ok(()),
            Some((_, Some(answer))) => answer,
            Some((ack, None)) => ack.await,
        }
    }

    /// Tells the server of every ack, each by itself where those before it have not finished.
    pub(crate) async fn tell_all(&self) -> lapin::Result<()> {
        self.tell().await?;
        match &self.transactions {
            None => self.tell_rest().await,
            Some(_) => Ok(()),
        }
    }

    async fn tell_rest(&self) -> lapin::Result<()> {
        if self.held.load(Ordering::Relaxed) {
            return Ok(());
        }
        let acks = {
            let mut book = self.book();
            let mut rest = Vec::new();
            book.rest(&mut rest);
            if self.no_acks {
                return Ok(());
            }
            let ack = |tag| {
                let mut ack = Box::pin(self.channel.basic_ack(tag, BasicAckOptions { multiple: false }));
                let answer = ack.as_mut().now_or_never();
                async move {
                    match answer {
                        Some(answer) => answer,
                        None => ack.await,
                    }
                }
            };
            rest.into_iter().map(ack).collect::<Vec<_>>()
        };
        join_all(acks).await.into_iter().collect()
    }

    /// Tells the server soon.
    pub(crate) fn tell_soon(&self) {
        self.late.notify_one();
    }

    /// Keeps the place in a stream, if that is to be kept.
    pub(crate) async fn keep_place(&self, outbox: &Outbox) -> Result<(), TransportError> {
        let Some(reading) = &self.reading else { return Ok(()) };
        let Some((position, place)) = reading.position.as_ref().zip(reading.place()) else {
            return Ok(());
        };
        let mut position = position.lock().await;
        let kept = position.keep(outbox, place).await;
        if position.has_ended() {
            // Someone else may read as this reader now.
            let _ = self.channel.close(200, "the position is lost".into()).await;
        }
        kept
    }

    /// Keeps the place in a stream whenever it has moved, for as long as the session lives.
    pub(crate) async fn keep_places(self: Arc<Self>, outbox: Arc<Outbox>) {
        let Some(moved) = self.reading.as_ref().map(|reading| reading.moved.clone()) else {
            return;
        };
        let session = Arc::downgrade(&self);
        drop(self);
        loop {
            moved.notified().await;
            let Some(session) = session.upgrade().filter(|session| session.stands()) else {
                return;
            };
            if let Err(error) = session.keep_place(&outbox).await {
                tracing::warn!(queue = session.queue, %error, "the place in a stream could not be kept");
                moved.notify_one();
            }
            drop(session);
            tokio::time::sleep(KEEP_EVERY).await;
        }
    }

    /// Tells the server, for as long as the session lives, of acks that have waited long enough.
    pub(crate) async fn tell_late(self: Arc<Self>) {
        let late = self.late.clone();
        let session = Arc::downgrade(&self);
        drop(self);
        loop {
            late.notified().await;
            tokio::time::sleep(ACKS_WAIT).await;
            let Some(session) = session.upgrade() else { return };
            if let Err(error) = session.tell_all().await {
                // They come again on the next channel.
                tracing::debug!(%error, "acks were lost with their channel");
                return;
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // What was acked is acked, though the halves are gone.
        let mut rest = Vec::new();
        self.book().rest(&mut rest);
        for tag in rest.into_iter().filter(|_| !self.no_acks) {
            // The frame is queued when the call is first polled; its confirmation of having been written is of no use here.
            let _ = self
                .channel
                .basic_ack(tag, BasicAckOptions { multiple: false })
                .now_or_never();
        }
        self.late.notify_one();
        if let Some(reading) = &self.reading {
            reading.moved.notify_one();
        }
    }
}

/// What a copy of a message says of its attempts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempts {
    /// Those made so far.
    pub(crate) made: u32,
    /// Whether the last of them never ended.
    pub(crate) unfinished: bool,
}

impl Message {
    /// The properties for a copy of it: the same message, with the attempts that were made.
    pub(crate) fn copy(&self, attempts: Attempts, queue: &str) -> lapin::BasicProperties {
        let mut table = self.published_headers();
        if attempts.made > 0 {
            table.insert(own::ATTEMPTS.into(), i64::from(attempts.made).into());
        }
        if attempts.unfinished {
            table.insert(own::UNFINISHED.into(), true.into());
        }
        let fields = &self.fields;
        if !fields.exchange().is_empty() || fields.routing_key() != queue {
            table.insert(own::EXCHANGE.into(), properties::long(fields.exchange().as_bytes()));
            table.insert(
                own::ROUTING_KEY.into(),
                properties::long(fields.routing_key().as_bytes()),
            );
        }
        properties::with_table(&fields.properties, table)
    }
}

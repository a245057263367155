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
use crate::properties::{self, own};
use crate::queue::Spec;

/// How long an ack waits at most for those before it, to be told together with them.
const ACKS_WAIT: Duration = Duration::from_millis(5);

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

    /// Opens a new session, and consumes at most `window` messages ahead.
    pub(crate) async fn open(&self, window: u16) -> Result<(Arc<Session>, Consumer), TransportError> {
        let live = self.outbox.consuming.live().await?;
        let channel = self.outbox.consuming.channel(&live).await?;
        let (queue, consumer) = self.spec.consume(&self.outbox, &live, &channel, window).await?;
        let session = Arc::new(Session {
            epoch: next_number(),
            queue,
            channel,
            live,
            book: Mutex::default(),
            late: Arc::default(),
            held: AtomicBool::new(false),
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
        if self.held.load(Ordering::Relaxed) {
            return Ok(());
        }
        let sending = {
            let mut book = self.book();
            let run = book.run();
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
        if self.held.load(Ordering::Relaxed) {
            return Ok(());
        }
        let acks = {
            let mut book = self.book();
            let mut rest = Vec::new();
            book.rest(&mut rest);
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
        for tag in rest {
            // The frame is queued when the call is first polled; its confirmation of having been written is of no use here.
            let _ = self
                .channel
                .basic_ack(tag, BasicAckOptions { multiple: false })
                .now_or_never();
        }
        self.late.notify_one();
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

//! What a handler publishes in one transaction with the ack of its message.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use ruststream::message::{Outgoing, header};
use ruststream::transport::{ErrorKind, TransportError, Verdict};

use crate::delivery::QueueReceipt;
use crate::error;
use crate::outbox::{Letter, unroutable};
use crate::properties::{self, long};
use crate::publish::prepare;
use crate::session::{Session, Subscription};
use crate::settings::Settings;

/// What a handler queued: published in one transaction with the ack of its message, and dropped where that is retried, given back or a dead
/// letter.
///
/// A subscription has it where its source says [`transactional`](crate::Queue::transactional).
///
/// # Examples
///
/// ```
/// use ruststream::message::Outgoing;
/// use ruststream::prelude::*;
/// use ruststream_lapin::MessageFields;
///
/// #[subscriber("orders")]
/// async fn confirm(order: u64, context: Context<'_>) -> Result<(), String> {
///     let fields: &MessageFields = context.fields().ok_or("this handler reads a queue")?;
///     let transaction = fields.transaction().ok_or("this subscription has no transactions")?;
///     let receipt = order.to_string();
///     transaction
///         .publish(&Outgoing::new("receipts", receipt.as_bytes()))
///         .map_err(|error| error.to_string())
/// }
/// ```
#[derive(Clone)]
pub struct LapinTransaction {
    settings: Arc<Settings>,
    queued: Arc<Mutex<Vec<Queued>>>,
}

struct Queued {
    exchange: String,
    routing_key: String,
    mandatory: bool,
    properties: BasicProperties,
    payload: Vec<u8>,
}

impl Queued {
    fn letter(&self) -> Letter<'_> {
        let mut letter = Letter::to_queue(self.routing_key.as_str(), self.properties.clone(), &self.payload);
        letter.exchange = self.exchange.as_str().into();
        letter.mandatory = self.mandatory;
        letter
    }
}

impl LapinTransaction {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            queued: Arc::default(),
        }
    }

    /// Queues a publish, by [options](crate::LapinPublish) to an exchange too.
    ///
    /// One that reaches no queue is known only when the transaction is over: it is put where the subscription's dead letters are.
    ///
    /// # Errors
    ///
    /// Where the message can be none of AMQP, or has a delay: what is to wait is published by a publisher.
    pub fn publish(&self, message: &Outgoing<'_>) -> Result<(), TransportError> {
        if !message.delay().is_zero() {
            let text = "a transaction keeps no delays: publish what is to wait by a publisher";
            return Err(TransportError::new(ErrorKind::Invalid, text));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let letter = prepare(&self.settings, message, now.as_secs())?;
        self.queued().push(Queued {
            exchange: letter.exchange.into_owned(),
            routing_key: letter.routing_key.into_owned(),
            mandatory: letter.mandatory,
            properties: letter.properties,
            payload: letter.payload.to_vec(),
        });
        Ok(())
    }

    /// Drops what was queued.
    pub fn clear(&self) {
        self.queued().clear();
    }

    fn queued(&self) -> MutexGuard<'_, Vec<Queued>> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Acks those that are to be acked, with what their handlers queued, in one transaction; they are taken out of `finished`.
///
/// Where it fails, nothing of it was done: the channel is lost, and its messages come again.
pub(crate) async fn settle(
    subscription: &Subscription,
    session: &Session,
    finished: &mut Vec<(QueueReceipt, Verdict)>,
) -> Result<(), TransportError> {
    let Some(alone) = &session.transactions else {
        return Ok(());
    };
    let is_acked = |(_, verdict): &(QueueReceipt, Verdict)| matches!(verdict, Verdict::Ack);
    let transactions = finished.iter().filter(|one| is_acked(one));
    let queued: Vec<Queued> = transactions
        .filter_map(|(receipt, _)| receipt.message.fields.transaction.as_ref())
        .flat_map(|transaction| std::mem::take(&mut *transaction.queued()))
        .collect();
    let link = &subscription.outbox.consuming;
    let what = format!("the transaction of acks of queue `{}`", session.queue);
    let committing = async {
        let _alone = alone.lock().await;
        for queued in &queued {
            let options = BasicPublishOptions {
                mandatory: queued.mandatory,
                ..BasicPublishOptions::default()
            };
            let (exchange, key) = (queued.exchange.as_str().into(), queued.routing_key.as_str().into());
            let properties = queued.properties.clone();
            session
                .channel
                .basic_publish(exchange, key, options, &queued.payload, properties)
                .await?;
        }
        {
            let mut book = session.book();
            for (receipt, _) in finished.iter().filter(|one| is_acked(one)) {
                book.ack(receipt.message.fields.tag);
            }
        }
        session.commit_acks().await?;
        // What it gave back came before its answer.
        session.channel.wait_for_confirms().await
    };
    let returned = link.call(&session.live, &what, committing).await;
    finished.retain(|one| !is_acked(one));
    let returned = match returned {
        Ok(returned) => returned,
        Err(error) => {
            tracing::warn!(queue = session.queue, %error, "nothing of a transaction was done; its messages come again");
            // Half of it may be on its way.
            let _ = session.channel.close(200, "a transaction failed".into()).await;
            return Ok(());
        }
    };
    let lost = queued.iter().filter(|queued| {
        let letter = queued.letter();
        returned.iter().any(|returned| letter.is(returned))
    });
    set_aside(subscription, session, lost.collect()).await
}

/// Keeps what reached no queue, with the reason: its handler has ended.
async fn set_aside(subscription: &Subscription, session: &Session, lost: Vec<&Queued>) -> Result<(), TransportError> {
    let Subscription { spec, outbox, .. } = subscription;
    if lost.is_empty() {
        return Ok(());
    }
    outbox.declare_dead_letters(spec).await?;
    let mut letters = Vec::with_capacity(lost.len());
    for queued in lost {
        let error = unroutable(&queued.letter(), &outbox.settings.label).to_string();
        tracing::warn!(queue = session.queue, error, "a message of a transaction is set aside");
        let mut table = queued.properties.headers().clone().unwrap_or_default();
        for (name, value) in [
            (header::DEAD_REASON, "unroutable"),
            (header::DEAD_ERROR, error::within_frame(&error)),
            (header::DEAD_SOURCE, &session.queue),
        ] {
            table.insert(name.into(), long(value.as_bytes()));
        }
        let properties = properties::with_table(&queued.properties, table);
        letters.push(Letter::to_queue(&*spec.dead_letters, properties, &queued.payload));
    }
    match outbox.send(&letters).await.pop() {
        None => Ok(()),
        Some((_, error)) => Err(error),
    }
}

impl fmt::Debug for LapinTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LapinTransaction")
            .field("queued", &self.queued().len())
            .finish_non_exhaustive()
    }
}

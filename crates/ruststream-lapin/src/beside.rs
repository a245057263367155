//! What a handler publishes in one transaction with the ack of its message.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use ruststream::message::{Outgoing, header};
use ruststream::transport::{DeadLetter, DeadReason, ErrorKind, TransportError, Verdict};

use crate::delivery::QueueReceipt;
use crate::error;
use crate::outbox::{Letter, unroutable};
use crate::properties::{self, long};
use crate::publish::prepare;
use crate::session::{Session, Subscription};
use crate::settings::Settings;

/// How often a message is handled whose publishes cannot be stored, before it becomes a dead letter.
const ATTEMPTS: u32 = 10;

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
    inside: Arc<Mutex<Inside>>,
}

#[derive(Default)]
struct Inside {
    queued: Vec<Queued>,
    /// What reached no queue, of a transaction that is over: to be put where the dead letters are.
    returned: Vec<Queued>,
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
            inside: Arc::default(),
        }
    }

    /// For another attempt at the same message: empty, and what the one before still queues is not in it.
    pub(crate) fn anew(&self) -> Self {
        Self::new(Arc::clone(&self.settings))
    }

    /// Queues a publish, by [options](crate::LapinPublish) to an exchange too.
    ///
    /// One that reaches no queue is known only when the transaction is over: it is put where the subscription's dead letters are. One to
    /// an exchange that is missing or forbidden fails the message that is handled: it is tried again, and after ten attempts a dead letter.
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
        self.inside().queued.push(Queued {
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
        self.inside().queued.clear();
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn transaction(receipt: &QueueReceipt) -> Option<&LapinTransaction> {
    receipt.message.fields.transaction.as_ref()
}

fn is_acked((_, verdict): &(QueueReceipt, Verdict)) -> bool {
    matches!(verdict, Verdict::Ack)
}

/// Acks those that are to be acked, with what their handlers queued, in one transaction; they are taken out of `finished`. Those that
/// published what reached no queue are added to `returned`.
///
/// Where it fails, nothing of it was done: the channel is lost, and its messages come again.
pub(crate) async fn settle(
    subscription: &Subscription,
    session: &Session,
    finished: &mut Vec<(QueueReceipt, Verdict)>,
    returned: &mut Vec<(QueueReceipt, Verdict)>,
) {
    let Some(alone) = &session.transactions else { return };
    refuse(subscription, finished).await;
    let acked: Vec<_> = finished.extract_if(.., |one| is_acked(one)).collect();
    let take = |(receipt, _): &(QueueReceipt, Verdict)| {
        transaction(receipt).map_or_else(Vec::new, |transaction| std::mem::take(&mut transaction.inside().queued))
    };
    let queued: Vec<Vec<Queued>> = acked.iter().map(take).collect();
    let link = &subscription.outbox.consuming;
    let what = format!("the transaction of acks of queue `{}`", session.queue);
    let committing = async {
        let _alone = alone.lock().await;
        for queued in queued.iter().flatten() {
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
            for (receipt, _) in &acked {
                book.ack(receipt.message.fields.tag);
            }
        }
        session.commit_acks().await?;
        // What it gave back came before its answer.
        session.channel.wait_for_confirms().await
    };
    let given_back = match link.call(&session.live, &what, committing).await {
        Ok(given_back) => given_back,
        Err(error) => {
            tracing::warn!(queue = session.queue, %error, "nothing of a transaction was done; its messages come again");
            let exchanges = queued.iter().flatten().map(|queued| queued.exchange.as_str());
            subscription.outbox.exchanges.failed(exchanges, &error);
            // Half of it may be on its way.
            let _ = session.channel.close(200, "a transaction failed".into()).await;
            return;
        }
    };
    if given_back.is_empty() {
        return;
    }
    for (one, mut lost) in acked.into_iter().zip(queued) {
        lost.retain(|queued| {
            let letter = queued.letter();
            given_back.iter().any(|returned| letter.is(returned))
        });
        if let (Some(transaction), false) = (transaction(&one.0), lost.is_empty()) {
            let label = &subscription.outbox.settings.label;
            let explained = lost.into_iter().map(|queued| queued.explained(label, &session.queue));
            transaction.inside().returned.extend(explained);
            returned.push(one);
        }
    }
}

/// Decides anew about acks of messages whose handlers publish to an exchange that takes nothing: the server would close the channel over
/// one of them, and everything in hand would come again.
async fn refuse(subscription: &Subscription, finished: &mut [(QueueReceipt, Verdict)]) {
    let Subscription { spec, outbox, .. } = subscription;
    for (receipt, verdict) in finished.iter_mut().filter(|one| is_acked(one)) {
        let Some(transaction) = transaction(receipt) else {
            continue;
        };
        let mut names: Vec<String> = {
            let inside = transaction.inside();
            inside.queued.iter().map(|queued| queued.exchange.clone()).collect()
        };
        names.dedup();
        for exchange in names {
            let Err(error) = outbox.takes_messages(&exchange).await else {
                continue;
            };
            transaction.clear();
            let attempts = receipt.message.attempt;
            if attempts < ATTEMPTS {
                tracing::warn!(queue = spec.name, attempts, %error, "a message is handled again: what it publishes cannot be stored");
                let after = Duration::from_millis(100 << attempts.min(9));
                *verdict = Verdict::Retry { after };
            } else {
                tracing::error!(queue = spec.name, attempts, %error, "a message becomes a dead letter: what it publishes cannot be stored");
                *verdict = Verdict::DeadLetter(Box::new(DeadLetter {
                    reason: DeadReason::AttemptsExhausted,
                    error: format!("its transaction cannot be committed: {error}"),
                    attempts,
                    source: spec.name.clone(),
                    at: SystemTime::now(),
                }));
            }
            break;
        }
    }
}

impl Queued {
    /// With the reason why it reached no queue.
    fn explained(self, label: &str, queue: &str) -> Self {
        let error = unroutable(&self.letter(), label).to_string();
        tracing::warn!(queue, error, "a message of a transaction is set aside");
        let mut table = self.properties.headers().clone().unwrap_or_default();
        for (name, value) in [
            (header::DEAD_REASON, "unroutable"),
            (header::DEAD_ERROR, error::within_frame(&error)),
            (header::DEAD_SOURCE, queue),
        ] {
            table.insert(name.into(), long(value.as_bytes()));
        }
        let properties = properties::with_table(&self.properties, table);
        Self { properties, ..self }
    }
}

fn has_returned(receipt: &QueueReceipt) -> bool {
    transaction(receipt).is_some_and(|transaction| !transaction.inside().returned.is_empty())
}

/// Takes out those that are acked, and whose publishes were not set aside yet.
pub(crate) fn take_returned(finished: &mut Vec<(QueueReceipt, Verdict)>) -> Vec<(QueueReceipt, Verdict)> {
    finished.extract_if(.., |(receipt, _)| has_returned(receipt)).collect()
}

/// Keeps what reached no queue, with the reason, since its handler has ended; leaves those of which something could not be stored.
pub(crate) async fn set_aside(
    subscription: &Subscription,
    returned: &mut Vec<(QueueReceipt, Verdict)>,
) -> Result<(), TransportError> {
    let Subscription { spec, outbox, .. } = subscription;
    if returned.is_empty() {
        return Ok(());
    }
    outbox.declare_dead_letters(spec).await?;
    let transactions = returned.iter().filter_map(|(receipt, _)| transaction(receipt));
    let lost: Vec<(LapinTransaction, Queued)> = transactions
        .flat_map(|transaction| {
            let lost = std::mem::take(&mut transaction.inside().returned);
            lost.into_iter().map(|queued| (transaction.clone(), queued))
        })
        .collect();
    let letters: Vec<_> = lost
        .iter()
        .map(|(_, queued)| Letter::to_queue(&*spec.dead_letters, queued.properties.clone(), &queued.payload))
        .collect();
    let mut failures = outbox.send(&letters).await;
    drop(letters);
    failures.sort_by_key(|(place, _)| *place);
    let mut first = None;
    let mut failed = failures.into_iter().peekable();
    for (place, (transaction, queued)) in lost.into_iter().enumerate() {
        if let Some((_, error)) = failed.next_if(|(known, _)| *known == place) {
            first.get_or_insert(error);
            transaction.inside().returned.push(queued);
        }
    }
    returned.retain(|(receipt, _)| has_returned(receipt));
    match first {
        None => Ok(()),
        Some(error) => {
            if error.is_unroutable() {
                outbox.forget_dead_letters(spec);
            }
            Err(error)
        }
    }
}

impl fmt::Debug for LapinTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LapinTransaction")
            .field("queued", &self.inside().queued.len())
            .finish_non_exhaustive()
    }
}

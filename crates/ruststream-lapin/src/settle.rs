//! The half of a subscription that gives receipts back.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ruststream::message::header;
use ruststream::transport::{DeadLetter, ErrorKind, Settle, Settled, TransportError, Verdict};

use crate::beside;
use crate::delay::Digits;
use crate::delivery::{Message, QueueReceipt};
use crate::error;
use crate::outbox::Letter;
use crate::properties::{self, long};
use crate::queue::Spec;
use crate::session::{Attempts, Session, Subscription};

/// Gives receipts back to a queue.
///
/// Acks are told to the server as one frame for a contiguous run. Everything else is a copy of the message, confirmed before the
/// original is acked: at its time into the queue again with its attempts, or into the queue for dead letters.
pub struct QueueSettle {
    subscription: Arc<Subscription>,
}

impl QueueSettle {
    pub(crate) fn new(subscription: Arc<Subscription>) -> Self {
        Self { subscription }
    }

    /// Settles what belongs to the channel that stands. Those that have something to be set aside are added to `returned`.
    async fn settle_held(
        &self,
        finished: &mut Vec<(QueueReceipt, Verdict)>,
        returned: &mut Vec<(QueueReceipt, Verdict)>,
    ) -> Result<Settled, TransportError> {
        let session = self.subscription.session().filter(|session| session.stands());
        let before = finished.len();
        let epoch = session.as_ref().map(|session| session.epoch);
        finished.retain(|(receipt, _)| Some(receipt.message.epoch) == epoch);
        let stale = before - finished.len();
        let Some(session) = session else {
            return Ok(Settled { stale });
        };
        if let Some(reading) = &session.reading {
            reading.give_back(taken_back(finished));
        }
        if session.no_acks {
            // Such a message is nowhere on the server any more, and no copy of it would find its way back.
            for (_, verdict) in &mut *finished {
                *verdict = Verdict::Ack;
            }
        }
        if session.transactions.is_some() {
            beside::settle(&self.subscription, &session, finished, returned).await;
        }
        let mut copies = false;
        {
            let mut book = session.book();
            for (receipt, verdict) in &*finished {
                if matches!(verdict, Verdict::Ack) {
                    book.ack(receipt.message.fields.tag);
                } else {
                    copies = true;
                }
            }
        }
        let mut failure = None;
        if copies {
            // What is acked need not wait for what is published.
            finished.retain(|(_, verdict)| !matches!(verdict, Verdict::Ack));
            let (told, failed) = tokio::join!(session.tell(), copy_all(&self.subscription, &session, finished));
            drop(told);
            failure = failed.err();
        } else {
            finished.clear();
        }
        // An ack that is lost with its channel is no error: its message comes again, and there is nothing to try again here.
        if let Err(error) = session.tell().await {
            tracing::debug!(%error, "acks were lost with their channel");
        }
        failure.map_or(Ok(Settled { stale }), Err)
    }
}

impl Settle for QueueSettle {
    type Receipt = QueueReceipt;

    async fn settle(&mut self, finished: &mut Vec<(QueueReceipt, Verdict)>) -> Result<Settled, TransportError> {
        if !self.subscription.spec.transactional {
            return self.settle_held(finished, &mut Vec::new()).await;
        }
        // What a transaction gave back is set aside, whatever has become of its channel.
        let mut returned = beside::take_returned(finished);
        let settled = self.settle_held(finished, &mut returned).await;
        let aside = beside::set_aside(&self.subscription, &mut returned).await;
        finished.append(&mut returned);
        aside.map_err(passing)?;
        settled
    }

    async fn close(self) -> Result<(), TransportError> {
        let Subscription { spec, outbox, .. } = &*self.subscription;
        if spec.is_direct_reply() {
            outbox.replies.leave(&spec.name);
        }
        let Some(session) = self.subscription.session() else {
            return Ok(());
        };
        self.subscription.leave();
        if !session.stands() {
            return Ok(());
        }
        session.go_on();
        let link = &outbox.consuming;
        link.call(&session.live, "the last acks", session.tell_all()).await?;
        if let Some(reading) = &session.reading {
            session.keep_place(outbox).await?;
            if let Some(position) = &reading.position {
                position.lock().await.close(outbox).await?;
            }
        }
        link.call(
            &session.live,
            "closing a channel",
            session.channel.close(200, "done".into()),
        )
        .await
    }
}

/// Those that a stream is to hand out again, with their attempts.
fn taken_back(finished: &mut Vec<(QueueReceipt, Verdict)>) -> impl Iterator<Item = Box<Message>> {
    let again = |(_, verdict): &mut (QueueReceipt, Verdict)| !matches!(verdict, Verdict::Ack | Verdict::DeadLetter(_));
    finished.extract_if(.., again).map(|(receipt, verdict)| {
        let mut message = receipt.message;
        match verdict {
            Verdict::Release => {}
            Verdict::Return { attempts } => message.again(attempts, false),
            _ => message.again(message.attempt, false),
        }
        message
    })
}

/// Publishes a copy of each as its verdict has it, and acks the originals of those that are confirmed. Leaves the others; the first
/// error of one is answered, and keeps back no other.
async fn copy_all(
    subscription: &Subscription,
    session: &Session,
    finished: &mut Vec<(QueueReceipt, Verdict)>,
) -> Result<(), TransportError> {
    let Subscription { spec, outbox, .. } = subscription;
    let is_dead = |verdict: &Verdict| matches!(verdict, Verdict::DeadLetter(_));
    let mut no_burying = None;
    if finished.iter().any(|(_, verdict)| is_dead(verdict)) {
        no_burying = outbox.declare_dead_letters(spec).await.err();
    }
    let mut no_delay = None;
    let mut failures: Vec<(usize, TransportError)> = Vec::new();
    let mut letters = Vec::with_capacity(finished.len());
    let mut places = Vec::with_capacity(finished.len());
    for (place, (receipt, verdict)) in finished.iter().enumerate() {
        let (mut letter, delay) = letter(spec, &session.queue, &receipt.message, verdict);
        if let (Some(delay), None) = (delay, &no_delay) {
            let digits = Digits::rounded(delay);
            no_delay = outbox.delayed(&mut letter, &digits, &session.queue).await.err();
        }
        let trouble = match delay {
            Some(_) => &no_delay,
            None if is_dead(verdict) => &no_burying,
            None => &None,
        };
        if let Some(error) = trouble {
            failures.push((place, error::again(error)));
        } else {
            letters.push(letter);
            places.push(place);
        }
    }
    let sent = outbox.send(&letters).await;
    drop(letters);
    failures.extend(sent.into_iter().map(|(letter, error)| (places[letter], error)));
    failures.sort_by_key(|(place, _)| *place);
    let mut place = 0;
    let mut first = None;
    let mut failed = failures.into_iter().peekable();
    let mut book = session.book();
    finished.retain(|(receipt, _)| {
        let mine = failed.next_if(|(known, _)| *known == place);
        place += 1;
        let failed = mine.is_some();
        if let Some((_, error)) = mine {
            first.get_or_insert(error);
        } else {
            book.ack(receipt.message.fields.tag);
        }
        failed
    });
    drop(book);
    match first {
        None => Ok(()),
        Some(error) => {
            if error.is_unroutable() {
                outbox.forget_dead_letters(spec);
                outbox.delays.forget();
            }
            Err(passing(error))
        }
    }
}

/// A copy that cannot be stored is tried again, whatever the reason: the original stays meanwhile, and given up it would
/// stay unsettled until its channel ends.
fn passing(error: TransportError) -> TransportError {
    if error.is_transient() {
        return error;
    }
    let text = error.to_string();
    TransportError::new(ErrorKind::Busy, text).with_cause(error)
}

/// The copy of a message that its verdict asks for, and how long it is to wait.
fn letter<'a>(
    spec: &'a Spec,
    queue: &'a str,
    message: &'a Message,
    verdict: &Verdict,
) -> (Letter<'a>, Option<Duration>) {
    let attempts = |made, unfinished| Attempts { made, unfinished };
    let (attempts, delay) = match verdict {
        Verdict::DeadLetter(letter) => {
            let properties = dead(message, letter, queue);
            return (
                Letter::to_queue(&*spec.dead_letters, properties, &message.payload),
                None,
            );
        }
        // Its attempt is given back, and with it what is known of the one before.
        Verdict::Release => (attempts(message.attempt - 1, message.is_unfinished()), None),
        Verdict::Return { attempts: made } => (attempts(*made, false), None),
        Verdict::Retry { after } => (attempts(message.attempt, false), (!after.is_zero()).then_some(*after)),
        // A verdict that this version does not know lets the message be handed out again.
        _ => (attempts(message.attempt, false), None),
    };
    let copy = message.copy(attempts, queue);
    (Letter::to_queue(queue, copy, &message.payload), delay)
}

/// The properties of a dead letter: those of the message, and why it is one.
fn dead(message: &Message, letter: &DeadLetter, queue: &str) -> lapin::BasicProperties {
    let millis = |time: std::time::SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_millis().to_string()
    };
    let none = Attempts {
        made: 0,
        unfinished: false,
    };
    let properties = message.copy(none, queue);
    let mut table = properties.headers().clone().unwrap_or_default();
    let attempts = letter.attempts.to_string();
    for (name, value) in [
        (header::DEAD_REASON, letter.reason.as_str()),
        (header::DEAD_ERROR, &letter.error),
        (header::DEAD_ATTEMPTS, &attempts),
        (header::DEAD_SOURCE, &letter.source),
        (header::DEAD_AT, &millis(letter.at)),
    ] {
        table.insert(name.into(), long(error::within_frame(value).as_bytes()));
    }
    if let Some(seconds) = *properties.timestamp() {
        let published = seconds.saturating_mul(1000).to_string();
        table.insert(header::DEAD_PUBLISHED_AT.into(), long(published.as_bytes()));
    }
    properties::with_table(&properties, table)
}

impl fmt::Debug for QueueSettle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueSettle")
            .field("queue", &self.subscription.spec.name)
            .finish_non_exhaustive()
    }
}

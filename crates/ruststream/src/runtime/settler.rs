//! The part that settles: replies and dead letters are confirmed first, then all that is finished is settled as one group.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;

use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use super::buffer::Buffer;
use super::entry::{Confirming, Messages, Purpose};
use super::fetcher::trouble_wait;
use super::judge::not_confirmed;
use super::shared::{Counts, Shared, Side};
use crate::message::Outgoing;
use crate::policy::Backoff;
use crate::publish::{Prepared, PublishLayers};
use crate::transport::{Delivery, Publish, PublishError, Settle, TransportError, Verdict};

/// How long the end of the settle half may take.
const CLOSING: Duration = Duration::from_secs(5);

/// How long what finishes gathers at least before it is settled together with what could not be.
const GATHERING: Duration = Duration::from_millis(10);

/// The wait before a dead letter is stored again, after so many failures. Never shorter than half the ceiling.
fn letter_wait(failures: u32) -> Duration {
    let backoff = Backoff::exponential(Duration::from_secs(1));
    backoff.ceiling(failures) / 2 + backoff.delay(failures, fastrand::f64()) / 2
}

/// The settle half with what it needs between calls.
struct Settler<S: Settle, P, D: Delivery<Receipt = S::Receipt>> {
    half: S,
    publisher: P,
    buffer: Arc<Buffer<D>>,
    group: Vec<(S::Receipt, Verdict)>,
    confirming: Vec<Confirming<D>>,
    /// Messages that were sent, on their way back to the pool.
    #[expect(clippy::vec_box, reason = "they go back into the pool in their boxes")]
    emptied: Vec<Box<Prepared>>,
    /// Replies that travel with the acks of the group.
    #[expect(clippy::vec_box, reason = "they go back into the pool in their boxes")]
    enclosed: Vec<Box<Prepared>>,
    renewal: Renewal,
}

/// When leases are to be renewed.
struct Renewal {
    every: Option<Duration>,
    due: Instant,
    failures: u32,
    lost: Vec<u64>,
}

/// Settles until nothing more will come, then ends the settle half.
pub(super) async fn settle_all<S, P, D>(half: S, publisher: P, buffer: Arc<Buffer<D>>)
where
    S: Settle,
    P: Publish,
    D: Delivery<Receipt = S::Receipt>,
{
    let shared = buffer.shared.clone();
    let every = shared.capabilities.lease().map(|lease| lease / 3);
    let renewal = Renewal {
        every,
        due: Instant::now() + every.unwrap_or_default(),
        failures: 0,
        lost: Vec::new(),
    };
    let mut settler = Settler {
        half,
        publisher,
        buffer,
        group: Vec::new(),
        confirming: Vec::new(),
        emptied: Vec::new(),
        enclosed: Vec::new(),
        renewal,
    };
    settler.run(&shared).await;
    match timeout(CLOSING, settler.half.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(subscription = %shared.name, %error, "the settle half did not end cleanly"),
        Err(_) => tracing::warn!(subscription = %shared.name, "the settle half did not end within {CLOSING:?}"),
    }
}

impl<S, P, D> Settler<S, P, D>
where
    S: Settle,
    P: Publish,
    D: Delivery<Receipt = S::Receipt>,
{
    async fn run(&mut self, shared: &Arc<Shared>) {
        loop {
            let sealed = self.buffer.swap_finished(&mut self.group, &mut self.confirming);
            if !self.group.is_empty() || !self.confirming.is_empty() {
                self.confirm(shared).await;
                self.settle(shared).await;
                self.tell_enclosed(shared);
                // Under load the receipts never cease; the leases are looked after in between.
                if self.renewal.is_due() {
                    self.renewal.renew(&mut self.half, &self.buffer).await;
                }
                continue;
            }
            if sealed {
                return;
            }
            let finished = shared.signals.finished.notified();
            renewing(&mut self.renewal, &mut self.half, &self.buffer, finished).await;
        }
    }

    /// Publishes replies and dead letters as one group, and decides anew about the originals of those not confirmed.
    async fn confirm(&mut self, shared: &Arc<Shared>) {
        self.enclose(shared);
        if self.confirming.is_empty() {
            return;
        }
        let messages = self.confirming.iter().flat_map(|waiting| waiting.messages.all());
        // Mostly one message each.
        let mut outgoing: Vec<Outgoing<'_>> = Vec::with_capacity(self.confirming.len());
        outgoing.extend(messages.map(|message| message.outgoing()));
        let publishing = self.publisher.publish(&outgoing);
        let result: Result<(), PublishError> =
            renewing(&mut self.renewal, &mut self.half, &self.buffer, publishing).await;
        drop(outgoing);
        let layers = shared.pool.layers();
        if !layers.is_empty() {
            self.tell(layers, &result);
        }
        let (mut position, mut replied) = (0, 0);
        for waiting in self.confirming.drain(..) {
            let its = position..position + waiting.messages.all().len();
            position = its.end;
            let failure = match &result {
                Ok(()) => None,
                Err(error) => its.into_iter().find_map(|position| error.for_message(position)),
            };
            match (failure, waiting.purpose) {
                (None, purpose) => {
                    match purpose {
                        Purpose::Reply => replied += 1,
                        Purpose::DeadLetter => {
                            Counts::add(&shared.counts.dead_lettered, 1);
                            shared.mended(Side::Burying);
                        }
                    }
                    let Confirming { entry, messages, .. } = waiting;
                    messages.move_to(&mut self.emptied);
                    let lane = entry.lane();
                    self.group.push((entry.delivery.into_receipt(), Verdict::Ack));
                    if let Some(lane) = lane {
                        self.buffer.leave_lane(lane);
                    }
                }
                (Some(error), Purpose::DeadLetter) => bury_later(&self.buffer, waiting, error),
                (Some(error), Purpose::Reply) => {
                    let Confirming { entry, messages, .. } = waiting;
                    let decision = not_confirmed(shared, &entry.incoming(), error);
                    messages.move_to(&mut self.emptied);
                    self.buffer.take_again();
                    self.buffer.carry_out(entry, decision);
                }
            }
        }
        Counts::add(&shared.counts.acked, replied);
        shared.pool.put(self.emptied.drain(..));
    }

    /// Lets replies travel with the acks of their messages, where the transport can do that.
    fn enclose(&mut self, shared: &Arc<Shared>) {
        let (mut able, result) = (true, Cell::new(Ok(())));
        let enclosed = self.confirming.extract_if(.., |waiting| {
            if !able || waiting.purpose != Purpose::Reply {
                return false;
            }
            let answer = match &waiting.messages {
                Messages::One(reply) => waiting.entry.delivery.enclose(&[reply.outgoing()]),
                Messages::Several(replies) => {
                    let replies: Vec<Outgoing<'_>> = replies.iter().map(|reply| reply.outgoing()).collect();
                    waiting.entry.delivery.enclose(&replies)
                }
            };
            able = answer.is_some();
            result.set(answer.unwrap_or(Ok(())));
            able
        });
        for Confirming { entry, messages, .. } in enclosed {
            let Err(error) = result.replace(Ok(())) else {
                messages.move_to(&mut self.enclosed);
                Counts::add(&shared.counts.acked, 1);
                let lane = entry.lane();
                self.group.push((entry.delivery.into_receipt(), Verdict::Ack));
                if let Some(lane) = lane {
                    self.buffer.leave_lane(lane);
                }
                continue;
            };
            for (index, message) in messages.all().iter().enumerate() {
                shared.pool.layers().after(message, error.for_message(index));
            }
            let decision = not_confirmed(shared, &entry.incoming(), error.first());
            messages.move_to(&mut self.emptied);
            self.buffer.take_again();
            self.buffer.carry_out(entry, decision);
        }
    }

    /// Tells the layers that the replies which travelled with acks are sent.
    fn tell_enclosed(&mut self, shared: &Shared) {
        if self.enclosed.is_empty() {
            return;
        }
        let layers = shared.pool.layers();
        if !layers.is_empty() {
            for message in &self.enclosed {
                layers.after(message, None);
            }
        }
        shared.pool.put(self.enclosed.drain(..));
    }

    /// Tells the layers around publishing what became of each reply.
    fn tell(&self, layers: &PublishLayers, result: &Result<(), PublishError>) {
        let mut position = 0;
        for waiting in &self.confirming {
            for message in waiting.messages.all() {
                if waiting.purpose == Purpose::Reply {
                    let failure = result.as_ref().err().and_then(|error| error.for_message(position));
                    layers.after(message, failure);
                }
                position += 1;
            }
        }
    }

    /// Settles the group, as often as it takes while the trouble may pass. What finishes meanwhile joins it: what cannot be settled
    /// keeps back nothing else.
    async fn settle(&mut self, shared: &Arc<Shared>) {
        let mut failures = 0u32;
        let mut troubled = false;
        while !self.group.is_empty() {
            let before = self.group.len();
            let result = self.half.settle(&mut self.group).await;
            let left = match &result {
                Ok(_) => {
                    self.group.clear();
                    0
                }
                Err(_) => self.group.len().min(before),
            };
            self.buffer.settled(before - left);
            match result {
                Ok(settled) => {
                    if settled.stale > 0 {
                        Counts::add(&shared.counts.stale, settled.stale);
                        tracing::warn!(
                            subscription = %shared.name, receipts = settled.stale,
                            "settled too late: the lease or the connection was lost, and the messages are delivered again"
                        );
                    }
                }
                Err(error) if error.is_transient() => {
                    let wait = trouble_wait(failures.saturating_add(1));
                    shared.troubled(Side::Settling, &error, wait);
                    troubled = true;
                    if left == 0 {
                        continue;
                    }
                    if self.wait_for_more(shared, wait).await {
                        self.gather();
                        self.confirm(shared).await;
                    } else {
                        failures = failures.saturating_add(1);
                    }
                }
                Err(error) => {
                    tracing::error!(
                        subscription = %shared.name, %error, receipts = self.group.len(),
                        "cannot settle; the broker delivers these messages again"
                    );
                    Counts::add(&shared.counts.stale, self.group.len());
                    self.buffer.settled(self.group.len());
                    self.group.clear();
                }
            }
        }
        if troubled {
            shared.mended(Side::Settling);
        }
    }

    /// Waits so long, or until something more is finished; true where it is.
    async fn wait_for_more(&mut self, shared: &Shared, wait: Duration) -> bool {
        let more = async {
            sleep(GATHERING).await;
            shared.signals.finished.notified().await;
        };
        let waiting = timeout(wait, more);
        renewing(&mut self.renewal, &mut self.half, &self.buffer, waiting)
            .await
            .is_ok()
    }

    /// Adds what is finished to the group.
    fn gather(&mut self) {
        let mut left = std::mem::take(&mut self.group);
        self.buffer.swap_finished(&mut self.group, &mut self.confirming);
        left.append(&mut self.group);
        self.group = left;
    }
}

/// Keeps a message whose dead letter could not be stored. There is no attempt too many here: as long as the dead letter is not
/// stored, the original is all there is.
#[cold]
fn bury_later<D: Delivery>(buffer: &Buffer<D>, waiting: Confirming<D>, error: &TransportError) {
    let wait = letter_wait(waiting.tries);
    buffer.shared.troubled(Side::Burying, error, wait);
    tracing::error!(
        subscription = %buffer.shared.name, error = super::shared::chain(error), ?wait,
        "a dead letter could not be stored; the message stays and is tried again"
    );
    let tries = waiting.tries.saturating_add(1);
    buffer.confirm_later(Confirming { tries, ..waiting }, wait);
}

impl Renewal {
    fn is_due(&self) -> bool {
        self.every.is_some() && self.due <= Instant::now()
    }

    async fn renew<S: Settle, D: Delivery>(&mut self, half: &mut S, buffer: &Buffer<D>) {
        let Some(every) = self.every else { return };
        match half.renew(&mut self.lost).await {
            Ok(()) => {
                if self.failures > 0 {
                    self.failures = 0;
                    buffer.shared.mended(Side::Settling);
                }
                self.due = Instant::now() + every;
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let wait = trouble_wait(self.failures).min(every / 4);
                buffer.shared.troubled(Side::Settling, &error, wait);
                self.due = Instant::now() + wait;
            }
        }
        if !self.lost.is_empty() {
            tracing::warn!(subscription = %buffer.shared.name, leases = self.lost.len(), "leases were lost");
            buffer.lost(&self.lost);
            self.lost.clear();
        }
    }
}

/// Awaits `work`, and renews the leases whenever they are due meanwhile.
async fn renewing<S: Settle, D: Delivery, T>(
    renewal: &mut Renewal,
    half: &mut S,
    buffer: &Buffer<D>,
    work: impl Future<Output = T>,
) -> T {
    if renewal.every.is_none() {
        return work.await;
    }
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep_until(renewal.due) => renewal.renew(half, buffer).await,
        }
    }
}

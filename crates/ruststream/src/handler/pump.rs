//! The seam between the runtime, which knows the transport, and a handler, whose type is erased here.
//!
//! A worker is one future, boxed once, that lives as long as the worker: it takes from a [`Hand`] behind `dyn`, so neither a
//! future nor a handler is boxed per message, and the code per handler is one small loop, whatever the transport.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::call::Cancel;
use super::{BatchOutcome, Batched, Call, Failure, FailureKind, HandlerOutcome, Outcome, Scope, Single};
use crate::message::Incoming;
use crate::publish::PublishLayers;

/// The messages that a worker has in hand.
pub(crate) trait Hand: Send {
    /// Waits until there is a next message or batch; false when there will be none.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<bool>;

    /// The next message, taken to be handled, and the desk that watches over the call; `None` when it has to be waited for.
    fn next(&mut self) -> Option<(InHand<'_>, &mut dyn Desk)>;

    /// As [`next`](Self::next), for a batch, which is put into `into`.
    fn next_batch<'a>(&'a mut self, into: &mut Vec<InHand<'a>>) -> Option<&'a mut dyn Desk>;

    /// The desk that watches over what was taken.
    fn desk(&mut self) -> &mut dyn Desk;

    /// Acks the message taken: the short way for the usual end.
    fn ack(&mut self);

    /// Settles the message taken.
    fn finish(&mut self, ended: Ended<Outcome>);

    /// Settles the batch taken.
    fn finish_batch(&mut self, ended: Ended<BatchOutcome>);
}

/// One message in a worker's hand.
#[derive(Clone, Copy)]
pub(crate) struct InHand<'a> {
    pub(crate) incoming: Incoming<'a>,
    pub(crate) worker: &'a WorkerFacts,
}

/// What is the same for all messages of a worker.
pub(crate) struct WorkerFacts {
    /// The name of the subscription.
    pub(crate) source: Arc<str>,
    pub(crate) cancel: Arc<Cancel>,
    /// When the subscription gives a message up.
    pub(crate) patience: Arc<dyn Patience>,
}

/// Tells when a message is given up.
pub(crate) trait Patience: Send + Sync {
    /// Whether no attempt follows this one, if its call ends so.
    fn ends_by(&self, attempt: u32, outcome: &Outcome) -> bool;

    /// Whether no attempt follows this one if it fails, exceptions by error aside.
    fn ends_with(&self, attempt: u32) -> bool;
}

/// Watches over a call that has to wait.
pub(crate) trait Desk: Send {
    /// Called whenever the handler waits: lets go of what need not wait with it, and says whether the call is to be dropped.
    fn poll_interrupt(&mut self, cx: &mut Context<'_>) -> Option<Interrupt>;
}

/// Why a call is dropped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// It took this long, which is its time-out.
    TimedOut(Duration),
    /// The app stops and the grace period is over.
    Stopped,
}

/// How a call ended.
pub(crate) enum Ended<T> {
    Said(T),
    Interrupted(Interrupt),
}

/// Drives one worker: takes from the hand and calls the handler, until the hand has no more.
pub(crate) trait Pump: Send + Sync {
    fn drive(self: Arc<Self>, hand: Box<dyn Hand>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

pub(super) struct SinglePump<H, S> {
    pub(super) handler: H,
    pub(super) scope: Scope<S>,
}

impl<H: Single<S>, S: Send + Sync + 'static> Pump for SinglePump<H, S> {
    fn drive(self: Arc<Self>, mut hand: Box<dyn Hand>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let Self { handler, scope } = &*self;
            loop {
                // Looked at where it was put, and so the call: neither is moved for each message.
                let mut taken = hand.next();
                let Some((in_hand, desk)) = &mut taken else {
                    if poll_fn(|cx| hand.poll_ready(cx)).await {
                        continue;
                    }
                    break;
                };
                let ended = watched(pin!(handler.call(Call::new(in_hand, scope))), *desk).await;
                if matches!(ended, Ended::Said(Outcome::Said(HandlerOutcome::Ack))) {
                    // Nothing in it needs a drop, and finding that out for every message is not free.
                    std::mem::forget(ended);
                    hand.ack();
                } else if scope.publisher.layers().is_empty() {
                    hand.finish(ended);
                } else {
                    finish_in_layers(&mut *hand, scope.publisher.layers(), ended).await;
                }
            }
        })
    }
}

pub(super) struct BatchPump<H, S> {
    pub(super) handler: H,
    pub(super) scope: Scope<S>,
}

impl<H: Batched<S>, S: Send + Sync + 'static> Pump for BatchPump<H, S> {
    fn drive(self: Arc<Self>, mut hand: Box<dyn Hand>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let Self { handler, scope } = &*self;
            let mut spare_taken: Vec<InHand<'static>> = Vec::new();
            let mut spare_calls: Vec<Call<'static, S>> = Vec::new();
            loop {
                let mut taken = emptied(spare_taken);
                let Some(desk) = hand.next_batch(&mut taken) else {
                    spare_taken = emptied(taken);
                    if poll_fn(|cx| hand.poll_ready(cx)).await {
                        continue;
                    }
                    break;
                };
                let mut calls: Vec<Call<'_, S>> = emptied(spare_calls);
                calls.extend(taken.iter().map(|in_hand| Call::new(in_hand, scope)));
                let ended = watched(pin!(handler.call(&calls)), desk).await;
                spare_calls = emptied(calls);
                spare_taken = emptied(taken);
                if scope.publisher.layers().is_empty() {
                    hand.finish_batch(ended);
                } else {
                    finish_batch_in_layers(&mut *hand, scope.publisher.layers(), ended).await;
                }
            }
        })
    }
}

/// The list without its items, in the same buffer: the standard library collects in place what is as large as before. So a
/// list of what lends from one batch serves the next, which lends for a lifetime of its own.
fn emptied<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// Takes the reply of a call through the layers around publishing, as the end of the call, and settles its message. Boxed: it takes
/// no room in a worker whose publishing has no layers.
#[cold]
fn finish_in_layers<'a>(hand: &'a mut dyn Hand, layers: &'a PublishLayers, ended: Ended<Outcome>) -> Finishing<'a> {
    Box::pin(async move {
        let ended = match ended {
            Ended::Said(outcome) => watched(pin!(before_reply(layers, outcome)), hand.desk()).await,
            interrupted @ Ended::Interrupted(_) => interrupted,
        };
        hand.finish(ended);
    })
}

/// As [`finish_in_layers`], for a batch.
#[cold]
fn finish_batch_in_layers<'a>(
    hand: &'a mut dyn Hand,
    layers: &'a PublishLayers,
    ended: Ended<BatchOutcome>,
) -> Finishing<'a> {
    Box::pin(async move {
        let ended = match ended {
            Ended::Said(BatchOutcome::Each(outcomes)) => {
                watched(pin!(before_replies(layers, outcomes)), hand.desk()).await
            }
            other => other,
        };
        hand.finish_batch(ended);
    })
}

type Finishing<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Takes a reply through the layers around publishing; where one refuses it, the call has failed.
async fn before_reply(layers: &PublishLayers, mut outcome: Outcome) -> Outcome {
    let replies = match &mut outcome {
        Outcome::Reply(reply) => std::slice::from_mut(reply),
        Outcome::Replies(replies) => &mut **replies,
        _ => return outcome,
    };
    for reply in replies {
        if let Err(error) = layers.before(reply).await {
            let text = format!("a layer refused the reply: {error}");
            return Outcome::Failed(Box::new(Failure::new(FailureKind::Reply, text)));
        }
    }
    outcome
}

/// As [`before_reply`], for all messages of a batch.
async fn before_replies(layers: &PublishLayers, outcomes: Vec<Outcome>) -> BatchOutcome {
    let mut passed = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        passed.push(before_reply(layers, outcome).await);
    }
    BatchOutcome::Each(passed)
}

/// Runs a call to its end, or until the desk interrupts it. A panic anywhere in it, or in the drop of what it holds, ends the
/// worker's task; the hand then shows what it was about (see `runtime::subscription`). So nothing is paid for it per message.
async fn watched<T>(mut call: Pin<&mut impl Future<Output = T>>, desk: &mut dyn Desk) -> Ended<T> {
    poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Ended::Said(outcome)),
        Poll::Pending => match desk.poll_interrupt(cx) {
            None => Poll::Pending,
            Some(interrupt) => Poll::Ready(Ended::Interrupted(interrupt)),
        },
    })
    .await
}

/// What a panic said. The payload itself is leaked where dropping it panics again.
pub(crate) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a text".to_owned(),
    };
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_list_keeps_its_buffer() {
        let text = "lent".to_owned();
        let list: Vec<&str> = Vec::from_iter([text.as_str(); 9]);
        let (place, capacity) = (list.as_ptr().addr(), list.capacity());
        let again: Vec<&'static str> = emptied(list);
        drop(text);
        assert_eq!(
            (again.len(), again.as_ptr().addr(), again.capacity()),
            (0, place, capacity)
        );
    }
}

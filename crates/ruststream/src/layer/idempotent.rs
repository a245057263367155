//! Each message once, however often it comes.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::handler::{Batch, BatchOutcome, Batched, Call, Failure, HandlerOutcome, Layer, Outcome, Single};
use crate::message::{Incoming, header};

/// Where it is noted which messages were handled.
///
/// A store that outlives its process must end a claim by itself after a time, since a process may die in the middle: longer than
/// any handler takes, and shorter than the retries of its subscription last.
pub trait IdempotencyStore: Send + Sync + 'static {
    /// What keeps it from answering.
    type Error: fmt::Display + Send + 'static;

    /// Notes that the message of this key is being handled, unless it is or was already; one of several at the same time gets it.
    ///
    /// # Errors
    ///
    /// Where the store does not answer; the message is tried again by its policy.
    fn claim(&self, key: &str) -> impl Future<Output = Result<Claim, Self::Error>> + Send;

    /// Notes that the message of this key was handled.
    ///
    /// # Errors
    ///
    /// Where the store does not answer; the message is handled all the same, and if it comes again, perhaps twice.
    fn complete(&self, key: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Takes a claim back: the message of this key may be handled again.
    ///
    /// # Errors
    ///
    /// Where the store does not answer.
    fn forget(&self, key: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What a claim is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claim {
    /// It is the caller's to handle.
    Granted,
    /// Another is handling it.
    InProgress,
    /// It was handled.
    Done,
}

/// What tells a message from others.
type KeyOf = dyn Fn(&Incoming<'_>) -> Option<String> + Send + Sync;

/// Handles each message once, however often it is delivered or was published: brokers deliver at least once, and so do most
/// publishers.
///
/// Messages are told apart by their header `message-id`, within their subscription; a message without it is handled as
/// without this layer. Two deliveries of one id never run at the same time:
///
/// - the second of a message that was handled is acked, without a call;
/// - the second of one that is being handled is tried again, by the policy of its subscription or
///   [after a fixed time](Self::retry_after), and counts an attempt as every retry does;
/// - a call that failed, panicked, was dropped, asked for a retry or for a dead letter leaves no mark, so that its message can
///   be handled again.
///
/// A *reply* leaves no mark either: it is sent after all layers, and an ack without it would lose it. Whose answer must come
/// once publishes it by `Out`. And no store makes an effect and its mark one: between the two, a crash repeats the effect.
///
/// # Examples
///
/// ```
/// use ruststream::layer::{Idempotent, MemoryIdempotency};
/// use ruststream::prelude::*;
///
/// #[subscriber("payments")]
/// async fn charge(cents: u64) {}
///
/// let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.layer(Idempotent::new(MemoryIdempotency::new(100_000)), |broker| {
///             broker.include(charge).workers(8);
///         });
///     })
///     .build();
/// # app.check().unwrap();
/// ```
pub struct Idempotent<T> {
    store: Arc<T>,
    key: Box<KeyOf>,
    retry_after: Option<Duration>,
}

impl<T: IdempotencyStore> Idempotent<T> {
    /// Tells messages apart by their header `message-id`.
    pub fn new(store: T) -> Self {
        Self {
            store: Arc::new(store),
            key: Box::new(|message| message.headers().get_str(header::MESSAGE_ID).map(str::to_owned)),
            retry_after: None,
        }
    }

    /// Tells messages apart by what `key` makes of them. One without a key is handled as without this layer.
    #[must_use]
    pub fn key(mut self, key: impl Fn(&Incoming<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key = Box::new(key);
        self
    }

    /// Sets after what time a message is tried again that another call is handling. The policy's backoff where nothing is set.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Claims the message of a call, or answers what becomes of it without a call.
    async fn claim<S>(&self, call: &Call<'_, S>) -> Result<Claimed<T>, Outcome> {
        let Some(key) = (self.key)(&call.incoming()) else {
            return Ok(Claimed(None));
        };
        // Two subscriptions may each get the same message.
        let key = format!("{}/{key}", call.source());
        match self.store.claim(&key).await {
            Ok(Claim::Granted) => Ok(Claimed(Some((self.store.clone(), key)))),
            Ok(Claim::Done) => {
                tracing::debug!(
                    subscription = call.source(),
                    key,
                    "handled before; acked without a call"
                );
                Err(Outcome::ACK)
            }
            Ok(Claim::InProgress) => Err(Outcome::Said(HandlerOutcome::Retry {
                after: self.retry_after,
            })),
            Err(error) => Err(Outcome::Failed(Box::new(Failure::error(error)))),
        }
    }
}

impl<T: IdempotencyStore> Layer for Idempotent<T> {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        let claimed = match self.claim(&call).await {
            Ok(claimed) => claimed,
            Err(outcome) => return outcome,
        };
        let outcome = next.call(call).await;
        claimed.end(&outcome).await;
        outcome
    }

    async fn call_batch<'a, S: Send + Sync + 'static>(
        &'a self,
        calls: &'a [Call<'a, S>],
        next: &'a impl Batched<S>,
    ) -> BatchOutcome {
        let mut decided = Vec::with_capacity(calls.len());
        let mut claims = Vec::with_capacity(calls.len());
        for call in calls {
            decided.push(self.claim(call).await.map(|claimed| {
                claims.push(claimed);
                *call
            }));
        }
        let batch = match Batch::apart(decided.into_iter()) {
            Ok(batch) => batch,
            Err(outcome) => return outcome,
        };
        let said = next.call(batch.messages()).await;
        match &said {
            BatchOutcome::All(outcome) => {
                for claimed in claims {
                    claimed.end(outcome).await;
                }
            }
            // Another number of outcomes is a failure of all.
            BatchOutcome::Each(outcomes) if outcomes.len() != claims.len() => drop(claims),
            BatchOutcome::Each(outcomes) => {
                for (claimed, outcome) in claims.into_iter().zip(outcomes) {
                    claimed.end(outcome).await;
                }
            }
        }
        batch.outcome(said)
    }
}

impl<T> fmt::Debug for Idempotent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotent")
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

/// A claim that is held, where the message has a key. Dropped, it is forgotten.
struct Claimed<T: IdempotencyStore>(Option<(Arc<T>, String)>);

impl<T: IdempotencyStore> Claimed<T> {
    async fn end(mut self, outcome: &Outcome) {
        let Some((store, key)) = &self.0 else { return };
        let ended = match outcome {
            Outcome::Said(HandlerOutcome::Ack | HandlerOutcome::Drop) => store.complete(key).await,
            _ => store.forget(key).await,
        };
        if let Err(error) = ended {
            tracing::error!(key, %error, "the end of a call could not be noted; its claim stays until its store ends it");
        }
        self.0 = None;
    }
}

impl<T: IdempotencyStore> Drop for Claimed<T> {
    fn drop(&mut self) {
        // A panic, or a call dropped in the middle: nobody is left to wait for the store.
        if let Some((store, key)) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                if let Err(error) = store.forget(&key).await {
                    tracing::error!(key, %error, "a claim could not be taken back; it stays until its store ends it");
                }
            });
        }
    }
}

/// Keeps in memory which messages were handled: the latest of them, within this process. Clones share what is kept.
#[derive(Debug, Clone)]
pub struct MemoryIdempotency {
    capacity: usize,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether it was handled, by key.
    keys: HashMap<Arc<str>, bool>,
    /// Those that were handled, the oldest first.
    done: VecDeque<Arc<str>>,
}

impl MemoryIdempotency {
    /// Remembers the latest `messages` that were handled.
    pub fn new(messages: usize) -> Self {
        Self {
            capacity: messages,
            known: Arc::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdempotencyStore for MemoryIdempotency {
    type Error = std::convert::Infallible;

    async fn claim(&self, key: &str) -> Result<Claim, Self::Error> {
        let mut known = self.known();
        Ok(match known.keys.get(key) {
            Some(true) => Claim::Done,
            Some(false) => Claim::InProgress,
            None => {
                known.keys.insert(key.into(), false);
                Claim::Granted
            }
        })
    }

    async fn complete(&self, key: &str) -> Result<(), Self::Error> {
        let key: Arc<str> = key.into();
        let mut known = self.known();
        if known.keys.insert(key.clone(), true) != Some(true) {
            known.done.push_back(key);
        }
        while known.done.len() > self.capacity {
            if let Some(oldest) = known.done.pop_front() {
                known.keys.remove(&oldest);
            }
        }
        Ok(())
    }

    async fn forget(&self, key: &str) -> Result<(), Self::Error> {
        let mut known = self.known();
        if known.keys.get(key) == Some(&false) {
            known.keys.remove(key);
        }
        Ok(())
    }
}

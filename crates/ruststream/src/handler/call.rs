//! One call of a handler: the message and all that extractors draw from.

use std::any::Any;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::extension::Extensions;
use super::{Extended, InHand, Message, Outcome};
use crate::codec::{Codec, Encode};
use crate::message::{Incoming, header};
use crate::publish::{Publisher, inherit};

/// One call of a handler: its message and all that extractors draw from. `S` is the state of the app.
pub struct Call<'a, S = ()> {
    pub(crate) in_hand: &'a InHand<'a>,
    pub(crate) scope: &'a Scope<S>,
    pub(super) extensions: Option<&'a Extensions<'a>>,
}

impl<S> Clone for Call<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Call<'_, S> {}

impl<'a, S> Call<'a, S> {
    pub(super) fn new(in_hand: &'a InHand<'a>, scope: &'a Scope<S>) -> Self {
        Self {
            in_hand,
            scope,
            extensions: None,
        }
    }

    /// The same call with another message in hand.
    pub(crate) fn with_in_hand<'b>(self, in_hand: &'b InHand<'b>) -> Call<'b, S>
    where
        'a: 'b,
    {
        Call { in_hand, ..self }
    }

    /// The message.
    pub fn incoming(&self) -> Incoming<'a> {
        self.in_hand.incoming
    }

    /// The name of the subscription.
    pub fn source(&self) -> &'a str {
        &self.in_hand.worker.source
    }

    /// The state of the app.
    pub fn state(&self) -> &'a S {
        &self.scope.state
    }

    /// A publisher on the broker of the subscription.
    pub fn publisher(&self) -> &'a Publisher {
        &self.scope.publisher
    }

    /// A token that is cancelled when the work on this message has become pointless: its lease is lost, its time is up, or the
    /// grace period of a shutdown has ended.
    pub fn cancellation(&self) -> CancellationToken {
        self.in_hand.worker.cancel.lend()
    }

    /// The value of this type that a layer has set for the call; that of the innermost, where several have.
    pub fn extension<T: 'static>(&self) -> Option<&'a T> {
        self.extensions?.get()
    }

    /// The same call with `value` set, for the handler to take by [`Extension<T>`](super::Extension): what a layer passes on.
    pub fn extend<'b, T: Any + Send + Sync>(self, value: &'b T) -> Extended<'b, S>
    where
        'a: 'b,
    {
        Extended::new(self, value)
    }

    /// Whether the subscription gives the message up if the call ends with `outcome`: no attempt is left, or the outcome asks for it. What a
    /// layer asks that has to tell a failure that is tried again from the last one.
    ///
    /// # Examples
    ///
    /// ```
    /// use ruststream::handler::{Call, Layer, Outcome, Single};
    ///
    /// /// Tells people of what was given up.
    /// struct Alarm;
    ///
    /// impl Layer for Alarm {
    ///     async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
    ///         let outcome = next.call(call).await;
    ///         if call.gives_up_by(&outcome) {
    ///             eprintln!("a message of {} was given up", call.source());
    ///         }
    ///         outcome
    ///     }
    /// }
    /// ```
    pub fn gives_up_by(&self, outcome: &Outcome) -> bool {
        self.in_hand
            .worker
            .patience
            .ends_by(self.in_hand.incoming.attempt(), outcome)
    }

    /// Whether a failure of this attempt is the last that the subscription's retry policy grants, exceptions by error aside.
    pub fn is_last_attempt(&self) -> bool {
        self.in_hand.worker.patience.ends_with(self.in_hand.incoming.attempt())
    }

    /// The codec of the subscription.
    pub fn codec(&self) -> &'a Codec {
        self.scope.publisher.codec()
    }

    /// Reads the message: a payload by what its `content-type` says, or by the [`codec`](Self::codec) of the subscription where
    /// it says nothing.
    ///
    /// # Errors
    ///
    /// [`Outcome::Undecodable`] with the reason.
    #[inline]
    pub fn decode<T: Message<'a>>(&self) -> Result<T, Outcome> {
        T::read(self.in_hand.incoming, self.codec()).map_err(Outcome::from)
    }

    /// The outcome of a call that answers with `reply`: it goes where the message asks for by its `reply-to`, or else to
    /// `destination`. Where there is neither, the message is handled without one.
    pub fn reply<T: Encode>(&self, destination: Option<&'static str>, reply: &T) -> Outcome {
        let Some(destination) = self.answer_to(destination) else {
            return Outcome::ACK;
        };
        match self.scope.publisher.prepare(Ok(destination), reply) {
            Ok(mut prepared) => {
                inherit(self.in_hand.incoming.headers(), &mut prepared.headers);
                Outcome::Reply(prepared)
            }
            Err(error) => Outcome::Failed(Box::new(super::Failure::error(error))),
        }
    }

    /// Where an answer goes: where the message asks for, or else to `fixed`.
    pub(super) fn answer_to(&self, fixed: Option<&'static str>) -> Option<Cow<'static, str>> {
        match self.in_hand.incoming.headers().get_str(header::REPLY_TO) {
            Some(asked) => Some(Cow::Owned(asked.to_owned())),
            None => fixed.map(Cow::Borrowed),
        }
    }
}

/// What all calls of one subscription share.
pub struct Scope<S> {
    pub(crate) state: Arc<S>,
    pub(crate) publisher: Publisher,
}

impl<S> Clone for Scope<S> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            publisher: self.publisher.clone(),
        }
    }
}

/// The cancellation token of a worker, made where a handler asks for it or it is cancelled.
#[derive(Default)]
pub(crate) struct Cancel {
    token: Mutex<Option<CancellationToken>>,
    used: AtomicBool,
}

impl Cancel {
    fn token(&self) -> MutexGuard<'_, Option<CancellationToken>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(&self) -> CancellationToken {
        self.used.store(true, Ordering::Relaxed);
        self.token().get_or_insert_default().clone()
    }

    /// Cancels the token of the message in hand.
    pub(crate) fn cancel(&self) {
        self.used.store(true, Ordering::Relaxed);
        self.token().get_or_insert_default().cancel();
    }

    /// Makes the next message start with a token of its own.
    #[inline]
    pub(crate) fn renew(&self) {
        if self.used.load(Ordering::Relaxed) {
            self.replace();
        }
    }

    #[cold]
    fn replace(&self) {
        *self.token() = None;
        self.used.store(false, Ordering::Relaxed);
    }
}

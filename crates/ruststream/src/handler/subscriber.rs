//! What `#[subscriber]` makes of an `async fn`, and how it is driven.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::pump::{BatchPump, Hand, Pump, SinglePump};
use super::{BatchOutcome, Call, Layers, Mounting, Outcome, Scope};
use crate::codec::Encode;

/// What a subscription reads and answers, as written on `#[subscriber]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Definition {
    /// The name of the handler function.
    pub handler: &'static str,
    /// The name that it subscribes to.
    pub name: Cow<'static, str>,
    /// Where its replies go.
    pub reply: Option<&'static str>,
    /// Its doc comment.
    pub description: &'static str,
    /// Whether it takes a batch of messages.
    pub batch: bool,
}

impl Definition {
    /// A handler of single messages without a reply.
    pub const fn new(handler: &'static str, name: &'static str) -> Self {
        Self {
            handler,
            name: Cow::Borrowed(name),
            reply: None,
            description: "",
            batch: false,
        }
    }

    /// Sets where its replies go.
    #[must_use]
    pub const fn with_reply(mut self, reply: &'static str) -> Self {
        self.reply = Some(reply);
        self
    }

    /// Sets what people read about it.
    #[must_use]
    pub const fn with_description(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }

    /// Makes it a handler of batches.
    #[must_use]
    pub const fn with_batch(mut self) -> Self {
        self.batch = true;
        self
    }
}

/// A handler with its subscription, for an app whose state is `S`. `#[subscriber]` implements it.
pub trait Subscriber<S>: Sized + Send + Sync + 'static {
    /// What it reads and answers.
    fn definition(&self) -> Definition;

    /// The handler, ready to be driven: [`Mounting::single`] or [`Mounting::batched`] makes it.
    fn into_handler<L: Layers>(self, mounting: Mounting<S, L>) -> Handler;
}

/// [`Subscriber`], as an app asks for it: by way of it, errors name the parameter at fault and not the handler that has no such
/// fault in another app.
#[diagnostic::on_unimplemented(
    message = "this is no handler for an app whose state is `{S}`",
    label = "a handler is an `async fn` under `#[subscriber(\"name\")]`, included by its name alone"
)]
pub trait Included<S>: Subscriber<S> {}

impl<S, H: Subscriber<S>> Included<S> for H {}

/// A handler of single messages.
pub trait Single<S>: Send + Sync + 'static {
    /// Handles one message.
    fn call<'a>(&'a self, call: Call<'a, S>) -> impl Future<Output = Outcome> + Send + 'a;
}

/// A handler of batches.
pub trait Batched<S>: Send + Sync + 'static {
    /// Handles the messages of one batch, which is never empty.
    fn call<'a>(&'a self, calls: &'a [Call<'a, S>]) -> impl Future<Output = BatchOutcome> + Send + 'a;
}

/// A handler with its type erased, once per subscription.
#[derive(Clone)]
pub struct Handler {
    pump: Arc<dyn Pump>,
}

impl Handler {
    pub(super) fn single<S: Send + Sync + 'static>(handler: impl Single<S>, scope: Scope<S>) -> Self {
        Self {
            pump: Arc::new(SinglePump { handler, scope }),
        }
    }

    pub(super) fn batched<S: Send + Sync + 'static>(handler: impl Batched<S>, scope: Scope<S>) -> Self {
        Self {
            pump: Arc::new(BatchPump { handler, scope }),
        }
    }

    /// Drives one worker.
    pub(crate) fn drive(&self, hand: Box<dyn Hand>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.pump.clone().drive(hand)
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler").finish_non_exhaustive()
    }
}

/// What a handler with a reply may return: everything that is written by a codec.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the reply of a handler",
    label = "not `Serialize`: derive it; a protobuf message is a `Proto<{Self}>`"
)]
pub trait IntoReply {
    /// The outcome that sends it where the message asks for, or else to `destination`.
    fn into_reply<S>(self, call: Call<'_, S>, destination: Option<&'static str>) -> Outcome;
}

#[diagnostic::do_not_recommend]
impl<T: Encode> IntoReply for T {
    fn into_reply<S>(self, call: Call<'_, S>, destination: Option<&'static str>) -> Outcome {
        call.reply(destination, &self)
    }
}

//! Parameters of a handler beside its message.

use std::convert::Infallible;
use std::ops::Deref;

use tokio_util::sync::CancellationToken;

use super::{Call, IntoFailure};

/// A parameter of a handler beside its message, drawn from the call. `S` is the state of the app.
///
/// # Examples
///
/// ```
/// use ruststream::handler::{Call, Extract};
///
/// /// Who sent the message.
/// struct Sender(String);
///
/// impl<'a, S: Send + Sync> Extract<'a, S> for Sender {
///     type Rejection = &'static str;
///
///     async fn extract(call: Call<'a, S>) -> Result<Self, Self::Rejection> {
///         let name = call.incoming().headers().get_str("sender").ok_or("the header `sender` is missing")?;
///         Ok(Self(name.to_owned()))
///     }
/// }
/// ```
pub trait Extract<'a, S>: Sized + Send {
    /// The error of a call that has no such value: anything that prints, or a `HandlerOutcome`.
    type Rejection: IntoFailure + Send;

    /// Draws the value from the call.
    ///
    /// # Errors
    ///
    /// A rejection ends the call before the handler runs; it counts as the handler's own error.
    ///
    /// # Cancel safety
    ///
    /// The call may be dropped at any await point when its time is up.
    fn extract(call: Call<'a, S>) -> impl Future<Output = Result<Self, Self::Rejection>> + Send;
}

/// A parameter of a batch handler beside its messages: what is the same for all of them.
///
/// [`State`], [`Out`](crate::publish::Out) and [`CancellationToken`] are; what is of one message (`Headers<T>`, `Context<'_>`) is not, and comes with each
/// message as an [`Envelope`](super::Envelope).
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use ruststream::handler::ExtractBatch;
/// use ruststream::prelude::*;
///
/// /// The name of the subscription.
/// struct Source(String);
///
/// impl<'a, S: Send + Sync> ExtractBatch<'a, S> for Source {
///     type Rejection = Infallible;
///
///     async fn extract_batch(calls: &[Call<'a, S>]) -> Result<Self, Infallible> {
///         Ok(Self(calls[0].source().to_owned()))
///     }
/// }
///
/// #[subscriber("readings")]
/// async fn store(readings: &[i64], Source(name): Source) {
///     println!("{} of {name}", readings.len());
/// }
/// ```
pub trait ExtractBatch<'a, S>: Sized + Send {
    /// The error of a batch that has no such value: anything that prints, or a `HandlerOutcome`.
    type Rejection: IntoFailure + Send;

    /// Draws the value from the calls of a batch, which is never empty.
    ///
    /// # Errors
    ///
    /// A rejection ends the batch before the handler runs; it counts as the handler's own error, for all messages.
    ///
    /// # Cancel safety
    ///
    /// As [`Extract::extract`].
    fn extract_batch(calls: &[Call<'a, S>]) -> impl Future<Output = Result<Self, Self::Rejection>> + Send;
}

/// The state of the app, or a part of it that [`FromState`] says how to take.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Clone)]
/// struct Shop { name: &'static str }
///
/// #[subscriber("orders")]
/// async fn greet(order: u64, State(shop): State<Shop>) {
///     println!("{}: order {order}", shop.name);
/// }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State<T>(pub T);

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// How a part is taken from the state of an app. Every `Clone` state gives itself as a whole.
pub trait FromState<S> {
    /// Takes the part.
    fn from_state(state: &S) -> Self;
}

#[diagnostic::do_not_recommend]
impl<S: Clone> FromState<S> for S {
    fn from_state(state: &S) -> Self {
        state.clone()
    }
}

/// [`FromState`], seen from the state. An error about a handler is written by way of it, since the compiler looks for no other
/// state that would do.
pub trait Offers<T> {
    /// Gives the part.
    fn offer(&self) -> T;
}

impl<S, T: FromState<S>> Offers<T> for S {
    fn offer(&self) -> T {
        T::from_state(self)
    }
}

impl<'a, S: Send + Sync + Offers<T>, T: Send> Extract<'a, S> for State<T> {
    type Rejection = Infallible;

    async fn extract(call: Call<'a, S>) -> Result<Self, Infallible> {
        Ok(Self(call.state().offer()))
    }
}

impl<'a, S: Send + Sync + Offers<T>, T: Send> ExtractBatch<'a, S> for State<T> {
    type Rejection = Infallible;

    async fn extract_batch(calls: &[Call<'a, S>]) -> Result<Self, Infallible> {
        Ok(Self(calls[0].state().offer()))
    }
}

/// Cancelled when the work on the message has become pointless: see [`Call::cancellation`].
impl<'a, S: Send + Sync> Extract<'a, S> for CancellationToken {
    type Rejection = Infallible;

    async fn extract(call: Call<'a, S>) -> Result<Self, Infallible> {
        Ok(call.cancellation())
    }
}

/// What draws the parameters of a handler, as `#[subscriber]` asks for it: whatever a parameter lacks, it is the parameter that the error is
/// about.
///
/// Not a trait of the parameters themselves: of a type that is the author's own the compiler would also show where it is declared, and the
/// error would have more than twenty lines.
#[derive(Debug, Clone, Copy)]
pub struct Parameters;

/// [`Extract`] of a `T`, by way of [`Parameters`].
#[diagnostic::on_unimplemented(
    message = "`{T}` cannot be a parameter of a handler in an app whose state is `{S}`",
    note = "`State<T>` is for an app with this state, which is `Clone`: `.state(..)` before its brokers; or `impl FromState<{S}> for T` takes T \
            from its state",
    note = "`Headers<T>` is for a T that is `Deserialize`; others: `&HeaderMap`, `Out<T>`, `Context<'_>`, `Extension<T>`, `CancellationToken`, \
            and types that implement `Extract`"
)]
pub trait Parameter<'a, S, T> {
    /// As [`Extract::Rejection`].
    type Rejection: IntoFailure + Send;

    /// As [`Extract::extract`].
    fn extract(call: Call<'a, S>) -> impl Future<Output = Result<T, Self::Rejection>> + Send;
}

#[diagnostic::do_not_recommend]
impl<'a, S, T: Extract<'a, S>> Parameter<'a, S, T> for Parameters {
    type Rejection = T::Rejection;

    fn extract(call: Call<'a, S>) -> impl Future<Output = Result<T, Self::Rejection>> + Send {
        T::extract(call)
    }
}

/// Cancelled when the work on any message of the batch has become pointless.
impl<'a, S: Send + Sync> ExtractBatch<'a, S> for CancellationToken {
    type Rejection = Infallible;

    async fn extract_batch(calls: &[Call<'a, S>]) -> Result<Self, Infallible> {
        Ok(calls[0].cancellation())
    }
}

/// [`ExtractBatch`] of a `T`, by way of [`Parameters`].
#[diagnostic::on_unimplemented(
    message = "`{T}` cannot be a parameter of a batch handler",
    note = "a batch has many messages: beside them its handler takes `State<T>`, `Out<T>`, `CancellationToken`, and types that \
            implement `ExtractBatch`",
    note = "`State<T>` is for an app with this state; for the headers, key and attempt of each message, take `&[Envelope<'_, T>]`"
)]
pub trait BatchParameter<'a, S, T> {
    /// As [`ExtractBatch::Rejection`].
    type Rejection: IntoFailure + Send;

    /// As [`ExtractBatch::extract_batch`].
    fn extract_batch(calls: &[Call<'a, S>]) -> impl Future<Output = Result<T, Self::Rejection>> + Send;
}

#[diagnostic::do_not_recommend]
impl<'a, S, T: ExtractBatch<'a, S>> BatchParameter<'a, S, T> for Parameters {
    type Rejection = T::Rejection;

    fn extract_batch(calls: &[Call<'a, S>]) -> impl Future<Output = Result<T, Self::Rejection>> + Send {
        T::extract_batch(calls)
    }
}

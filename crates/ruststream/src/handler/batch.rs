//! What a batch handler is given, and what it says of it.

use super::{Call, Failure, FailureKind, HandlerOutcome, IntoFailure, IntoOutcome, Outcome};

/// What a batch handler said: one outcome for all of its messages, or one for each.
#[derive(Debug)]
#[non_exhaustive]
pub enum BatchOutcome {
    /// The same for every message.
    All(Outcome),
    /// One for each message, in their order.
    Each(Vec<Outcome>),
}

/// What a batch handler may return.
#[diagnostic::on_unimplemented(
    message = "a batch handler cannot return `{Self}`",
    label = "this is neither one outcome for the batch nor a `Vec` of one for each message",
    note = "return `()`, `HandlerOutcome`, `Result<(), E>`, `Vec<HandlerOutcome>` or `Vec<Result<(), E>>`"
)]
pub trait IntoBatchOutcome {
    /// The outcomes that this value means.
    fn into_batch_outcome(self) -> BatchOutcome;
}

#[diagnostic::do_not_recommend]
impl IntoBatchOutcome for () {
    fn into_batch_outcome(self) -> BatchOutcome {
        BatchOutcome::All(Outcome::ACK)
    }
}

#[diagnostic::do_not_recommend]
impl IntoBatchOutcome for HandlerOutcome {
    fn into_batch_outcome(self) -> BatchOutcome {
        BatchOutcome::All(Outcome::Said(self))
    }
}

#[diagnostic::do_not_recommend]
impl<T: IntoOutcome> IntoBatchOutcome for Vec<T> {
    fn into_batch_outcome(self) -> BatchOutcome {
        BatchOutcome::Each(self.into_iter().map(IntoOutcome::into_outcome).collect())
    }
}

#[diagnostic::do_not_recommend]
impl<T: IntoBatchOutcome, E: IntoFailure> IntoBatchOutcome for Result<T, E> {
    fn into_batch_outcome(self) -> BatchOutcome {
        match self {
            Ok(value) => value.into_batch_outcome(),
            Err(error) => BatchOutcome::All(error.into_failure()),
        }
    }
}

/// The messages of a batch, apart from those that cannot be decoded.
///
/// `#[subscriber]` uses it; so can an implementation of [`Batched`](super::Batched) by hand.
#[derive(Debug)]
pub struct Batch<T> {
    messages: Vec<T>,
    /// What is not among the messages, by its place in the batch, in order.
    undecodable: Vec<(usize, Outcome)>,
}

impl<T> Batch<T> {
    /// Reads the messages of a batch: by [`Call::decode`], or by a function that takes something else
    /// of each call.
    ///
    /// # Errors
    ///
    /// The outcome of the whole batch, where none of its messages can be read.
    pub fn read<'a, S>(
        calls: &[Call<'a, S>],
        read: impl Fn(&Call<'a, S>) -> Result<T, Outcome>,
    ) -> Result<Self, BatchOutcome> {
        Self::apart(calls.iter().map(read))
    }

    /// A batch of which some messages have their outcome already, as a layer decides it: what goes on, by its place, or what it is answered
    /// with instead.
    ///
    /// # Errors
    ///
    /// The outcome of the whole batch, where none goes on.
    pub fn apart(decided: impl ExactSizeIterator<Item = Result<T, Outcome>>) -> Result<Self, BatchOutcome> {
        let mut batch = Self {
            messages: Vec::with_capacity(decided.len()),
            undecodable: Vec::new(),
        };
        for one in decided {
            match one {
                Ok(message) => batch.messages.push(message),
                Err(outcome) => {
                    let place = batch.messages.len() + batch.undecodable.len();
                    batch.undecodable.push((place, outcome));
                }
            }
        }
        if batch.messages.is_empty() {
            return Err(BatchOutcome::Each(
                batch.undecodable.into_iter().map(|(_, outcome)| outcome).collect(),
            ));
        }
        Ok(batch)
    }

    /// The messages that were decoded, in their order. Never empty.
    pub fn messages(&self) -> &[T] {
        &self.messages
    }

    /// The outcome of the whole batch, where `said` is the outcome of the messages that were decoded.
    ///
    /// One for each of them must say as many outcomes as there are [`messages`](Self::messages); otherwise all of them fail
    /// with [`FailureKind::WrongCount`].
    pub fn outcome(self, said: BatchOutcome) -> BatchOutcome {
        if self.undecodable.is_empty() {
            return said;
        }
        let count = self.messages.len();
        let said = match said {
            BatchOutcome::Each(outcomes) if outcomes.len() == count => outcomes,
            BatchOutcome::Each(outcomes) => {
                let text = wrong_count(outcomes.len(), count);
                vec![Outcome::Failed(Box::new(Failure::new(FailureKind::WrongCount, text))); count]
            }
            BatchOutcome::All(outcome) => vec![outcome; count],
        };
        let mut said = said.into_iter();
        let mut undecodable = self.undecodable.into_iter().peekable();
        let places = count + undecodable.len();
        let merged = (0..places)
            .filter_map(|place| match undecodable.next_if(|(at, _)| *at == place) {
                Some((_, outcome)) => Some(outcome),
                None => said.next(),
            })
            .collect();
        BatchOutcome::Each(merged)
    }
}

/// What is said of a batch whose handler answered `outcomes` outcomes for `messages` messages.
fn wrong_count(outcomes: usize, messages: usize) -> String {
    format!(
        "the batch handler answered {outcomes} outcomes for {messages} messages; return one for each, in their order"
    )
}

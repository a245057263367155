//! Messages that are checked once they are decoded, by `garde`.

use std::ops::Deref;

use garde::Validate;

use super::Message;
use crate::codec::{Codec, CodecError};
use crate::message::Incoming;

/// A message that has passed its own rules, as written with [`garde`]: one that breaks them is undecodable, and the reason names
/// the fields. Take it as the message of a handler, alone or in a batch (`&[Valid<Order>]`).
///
/// # Examples
///
/// ```
/// use garde::Validate;
/// use ruststream::prelude::*;
///
/// #[derive(Deserialize, Validate)]
/// struct Order {
///     #[garde(range(min = 1))]
///     cents: i64,
///     #[garde(skip)]
///     note: String,
/// }
///
/// #[subscriber("orders")]
/// async fn confirm(Valid(order): Valid<Order>) {
///     assert!(order.cents > 0);
/// }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Valid<T>(pub T);

impl<T> Deref for Valid<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T> Message<'a> for Valid<T>
where
    T: Message<'a> + Validate,
    T::Context: Default,
{
    fn read(incoming: Incoming<'a>, codec: &Codec) -> Result<Self, CodecError> {
        let message = T::read(incoming, codec)?;
        match message.validate() {
            Ok(()) => Ok(Self(message)),
            Err(report) => Err(invalid::<T>(&report)),
        }
    }
}

#[cold]
fn invalid<T>(report: &garde::Report) -> CodecError {
    let broken: Vec<_> = report
        .iter()
        .map(|(path, error)| match path.to_string() {
            path if path.is_empty() => error.to_string(),
            path => format!("`{path}`: {error}"),
        })
        .collect();
    CodecError::new(format!(
        "the payload is no valid {}: {}",
        std::any::type_name::<T>(),
        broken.join("; ")
    ))
}

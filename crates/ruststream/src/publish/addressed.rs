//! Messages that know where they go.

use std::borrow::Cow;

use super::InvalidDestination;

/// A message whose type says where it is published: [`Publisher::send`](super::Publisher::send) and [`Out::send`](super::Out::send) take it
/// there.
///
/// `#[derive(Message)]` implements it. The destination may name fields of the message, whose values then stand in it; that the
/// fields are there is checked when the service is compiled, and a value that would lead elsewhere is refused when the message is
/// published (see [`fill`](super::fill)).
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Serialize, Deserialize, Message)]
/// #[message(destination = "orders.{region}")]
/// struct Order {
///     id: u64,
///     region: String,
/// }
///
/// # async fn example(publisher: Publisher) -> Result<(), PublishError> {
/// let order = Order { id: 7, region: "eu".to_owned() };
/// publisher.send(&order).key("customer-7").await?; // to `orders.eu`
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "the type `{Self}` does not say where it is published",
    label = "`Addressed` is not implemented for this type",
    note = "say it on the type: `#[derive(Message)] #[message(destination = \"orders\")]`",
    note = "or here: `publish(\"orders\", &message)`"
)]
pub trait Addressed {
    /// Where this message goes.
    ///
    /// # Errors
    ///
    /// Where a name cannot be made of what is in the message.
    fn destination(&self) -> Result<Cow<'static, str>, InvalidDestination>;
}

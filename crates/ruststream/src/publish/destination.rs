//! The names that messages are published to.

use std::borrow::Cow;

/// A name to publish to: `"receipts"`, or one that was put together, such as `format!("receipts.{region}")`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no name to publish to",
    label = "this is neither a `&'static str` nor a `String`",
    note = "the name comes first, the message after it and lent: `publish(\"receipts\", &receipt)`"
)]
pub trait Destination {
    /// The name.
    fn into_name(self) -> Cow<'static, str>;
}

#[diagnostic::do_not_recommend]
impl Destination for &'static str {
    fn into_name(self) -> Cow<'static, str> {
        Cow::Borrowed(self)
    }
}

#[diagnostic::do_not_recommend]
impl Destination for String {
    fn into_name(self) -> Cow<'static, str> {
        Cow::Owned(self)
    }
}

#[diagnostic::do_not_recommend]
impl Destination for Cow<'static, str> {
    fn into_name(self) -> Cow<'static, str> {
        self
    }
}

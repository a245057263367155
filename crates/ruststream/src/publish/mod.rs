//! Publishing from handlers and from anywhere else.

mod out;
mod prepared;
mod publisher;

pub use out::Out;
pub use prepared::Prepared;
pub use publisher::{Publisher, Publishing};

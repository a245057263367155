//! Publishing from handlers and from anywhere else.

mod addressed;
mod destination;
mod layers;
mod out;
mod pool;
mod prepared;
mod publisher;
mod request;

pub use addressed::Addressed;
pub(crate) use destination::nowhere;
pub use destination::{Destination, InvalidDestination, fill};
pub use layers::PublishLayer;
pub(crate) use layers::PublishLayers;
pub use out::Out;
pub(crate) use pool::Pool;
pub use prepared::Prepared;
pub(crate) use prepared::inherit;
pub(crate) use publisher::unwritable;
pub use publisher::{Publisher, Publishing};
pub use request::{Client, Request, RequestError};
pub(crate) use request::{Pending, Replies};

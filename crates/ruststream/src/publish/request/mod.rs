//! Asking and being answered: requests over a broker, with a deadline on each.

mod client;
mod error;
mod pending;

pub use client::{Client, Request};
pub use error::RequestError;
pub(crate) use pending::{Pending, Replies};

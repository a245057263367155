//! What the cases share: a place with a file, services as processes on it, and the side file that tells what they did.

mod job;
mod node;
mod place;
mod service;
mod side;

pub(crate) use job::{Job, Work};
pub(crate) use node::{Node, SECOND};
pub(crate) use place::{Place, publish};
pub(crate) use service::{Queue, Sending, Service, serve};
pub(crate) use side::{Line, Side, attempts, ends, now, of, runs};

//! A messaging framework: handlers are plain async functions, and nothing is lost by default.

extern crate self as ruststream;

pub mod codec;
pub mod handler;
pub mod message;
pub mod policy;
pub mod publish;
mod runtime;
pub mod transport;

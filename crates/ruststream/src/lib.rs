//! A messaging framework: handlers are plain async functions, and nothing is lost by default.

pub mod codec;
pub mod message;
pub mod policy;
pub mod transport;

//! A messaging framework: handlers are plain async functions, and nothing is lost by default.

pub mod app;
pub mod codec;
pub mod handler;
pub mod memory;
pub mod message;
pub mod policy;
pub mod prelude;
pub mod publish;
mod runtime;
pub mod transport;

pub use app::{AppInfo, RustStream};

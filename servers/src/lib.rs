//! The servers that tests and benchmarks talk to.
//!
//! Two ways to get one:
//!
//! - [`shared`] gives the URL of a server that all tests may use at once. It is taken from the environment
//!   ([`Kind::variable`]) if it stands there; otherwise a private instance is started on a free port of the loopback,
//!   once for all processes, and goes on until [`stop_shared`] (`cargo xtask services stop`). What is missing on the machine
//!   is installed by apt where that is possible, and each step is told on the standard error.
//! - [`Instance::start`] starts one for a single test, which may [kill](Instance::kill), [pause](Instance::pause) and
//!   [start it again](Instance::start_again) as it likes. It ends with its value.
//!
//! [`Proxy`] stands between a client and a server and cuts, stalls or slows what passes.
//!
//! Nothing here needs an asynchronous runtime, so a paused clock does not concern it.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "who waits for an installation wants to know of it")]

mod error;
mod install;
mod instance;
mod kind;
mod maria;
mod mosquitto;
mod postgres;
mod process;
mod proxy;
mod rabbit;
mod redis;
mod redis_cluster;
mod redis_nodes;
mod redis_sentinel;
mod shared;

pub use error::Error;
pub use install::{chromium, program};
pub use instance::{Instance, Settings};
pub use kind::Kind;
pub use proxy::Proxy;
pub use redis_nodes::RedisNodes;
pub use shared::{shared, shared_running, stop_shared};

//! What a service needs, to be imported as a whole: `use ruststream::prelude::*;`.

pub use std::time::Duration;

pub use serde::{Deserialize, Serialize};
pub use tokio_util::sync::CancellationToken;

pub use crate::app::{AppHandle, AppInfo, HookResult, RustStream};
#[cfg(feature = "prost")]
pub use crate::handler::Proto;
#[cfg(feature = "garde")]
pub use crate::handler::Valid;
pub use crate::handler::{Call, Context, Envelope, Extension, Extract, HandlerOutcome, Headers, Replies, Reply, State};
pub use crate::memory::MemoryBroker;
pub use crate::message::HeaderMap;
pub use crate::policy::{OnUndecodable, OrderBy, Retry};
pub use crate::publish::{Out, Publisher};
pub use crate::transport::PublishError;
pub use crate::{Message, subscriber};

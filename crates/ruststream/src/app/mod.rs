//! An app: its state, its brokers, its handlers, and its life from start to shutdown.

mod background;
mod broker;
mod builder;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod dead_letters;
mod error;
mod health;
mod hooks;
mod info;
mod late;
#[cfg(feature = "testing")]
mod moving;
mod report;
mod running;
mod scope;
mod signals;
mod start;

pub use background::{Background, BackgroundContext, BackgroundHealth, BackgroundState};
pub use builder::{AppBuilder, RustStream};
#[cfg(feature = "cli")]
pub use cli::main;
pub use error::AppError;
pub use health::{Health, SubscriptionHealth, SubscriptionState};
pub use hooks::HookResult;
pub use info::AppInfo;
#[cfg(feature = "testing")]
pub(crate) use moving::{Arriving, Leaving, Reader};
pub use running::{AppHandle, Running};
pub use scope::{BrokerScope, Subscription};

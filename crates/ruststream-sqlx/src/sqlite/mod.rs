//! What is particular to `SQLite`: schema, statements, the one writer of a connection, and its reader.

mod clock;
mod database;
mod driver;
mod error;
mod identity;
mod locks;
mod plan;
mod reader;
mod schema;
mod settings;
mod statements;
mod tables;
mod waiting;
mod writer;

pub(crate) use driver::open;
pub(crate) use settings::Settings;
pub use settings::{Sqlite, Synchronous};

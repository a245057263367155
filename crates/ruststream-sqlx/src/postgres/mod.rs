//! What is particular to `PostgreSQL`: schema, statements, and the channel that tells of new messages.

mod answers;
mod dialect;
mod error;
mod listen;
mod schema;
mod settings;
mod statements;
mod tables;

pub use settings::Postgres;

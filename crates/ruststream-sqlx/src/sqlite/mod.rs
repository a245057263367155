//! What is particular to `SQLite`: schema, statements, and the one writer of a connection.

mod database;
mod identity;
mod plan;
mod reader;
mod schema;
pub(crate) mod statements;
mod wake;
mod writer;
mod writer_handle;

pub(crate) use reader::Reader;
pub(crate) use statements::random_token;
pub(crate) use writer_handle::WriterHandle;

//! What is particular to `MariaDB` and MySQL: schema and statements, in the SQL that both speak.

mod answers;
mod dialect;
mod error;
mod schema;
mod settings;
mod statements;
mod tables;

pub use settings::MySql;

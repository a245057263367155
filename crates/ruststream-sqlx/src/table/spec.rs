//! What `#[derive(Inbox)]` says of a table.

use std::any::Any;

use ruststream::message::Incoming;
use sqlx::Database;
use sqlx::error::BoxDynError;

use crate::fetch::InboxRow;

/// A table of the user's own whose rows are messages, by `#[derive(Inbox)]` on its struct.
///
/// The field attributes say what each column is for:
///
/// | `#[inbox(..)]` | column |
/// | --- | --- |
/// | `id` | the primary key: 32 or 64 bits, uuid, or text |
/// | `attempt` | how often the row was handed out: an integer |
/// | `run_at` | when it is due, also after a retry: a time |
/// | `lease` | until when someone has it: a time |
/// | `token` | who has it: 64 bits |
/// | `group` | which queue of the table it belongs to: text; without it the table is one queue |
/// | `payload` | the bytes, text or JSON of the message, for handlers that do not take the row |
/// | `headers` | the headers of the message: bytes |
/// | `key` | the key whose order `.fifo()` keeps |
/// | `priority` | the highest comes first, with `.priority()`: an integer |
/// | `processed_at` | when it was done; with it rows are kept, and deleted without |
/// | `dead_at`, `dead_reason` | when and why it was given up; without it a copy goes to the queue `<name>.dead` |
/// | `generated` | the database fills it in: it is left out of inserts |
/// | `column = "name"` | the name of the column, where it is not that of the field |
///
/// The first five have to be there. A time is a `timestamptz` on Postgres, a `DATETIME` in UTC on MySQL, and milliseconds since
/// 1970 as an `INTEGER` on `SQLite`. On the struct, `#[inbox(table = "jobs", schema = "shop")]` names the table, and `#[inbox(lease = "held_until")]`
/// says what a column is for that has no field: it is filled in by the database when a row is inserted.
///
/// A column that is missing or of another type ends the start, by its name.
pub trait InboxTable: Send + Sync + 'static {
    /// The table and its columns.
    #[doc(hidden)]
    const TABLE: TableSpec;
}

/// A row that can be read from its table, by `#[derive(Inbox)]`.
pub trait ReadRow<DB: Database>: InboxTable + Sized {
    /// Makes it of what the driver has.
    #[doc(hidden)]
    fn read(row: &DB::Row) -> Result<Self, sqlx::Error>;
}

/// A row that can be inserted into its table, by `#[derive(Inbox)]`.
pub trait InsertRow<DB: Database>: InboxTable {
    /// Adds the values of its columns, those left out that the database fills in.
    #[doc(hidden)]
    fn bind(&self, arguments: &mut DB::Arguments) -> Result<(), BoxDynError>;
}

#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct TableSpec {
    pub schema: Option<&'static str>,
    pub table: &'static str,
    pub columns: &'static [ColumnSpec],
}

#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct ColumnSpec {
    pub name: &'static str,
    pub role: Role,
    pub generated: bool,
}

#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Plain,
    Id,
    Attempt,
    RunAt,
    Lease,
    Token,
    Group,
    Payload,
    Headers,
    Key,
    Priority,
    ProcessedAt,
    DeadAt,
    DeadReason,
}

/// Makes the struct of a row.
pub(crate) type Decode = fn(&(dyn Any + Send + Sync)) -> Result<Box<dyn Any>, sqlx::Error>;

/// As the driver does it.
pub(crate) fn decode<T, DB>(raw: &(dyn Any + Send + Sync)) -> Result<Box<dyn Any>, sqlx::Error>
where
    DB: Database,
    T: ReadRow<DB>,
{
    let raw: &dyn Any = raw;
    let row = raw.downcast_ref::<DB::Row>().ok_or(sqlx::Error::RowNotFound)?;
    Ok(Box::new(T::read(row)?))
}

/// The row of a message, as its struct.
///
/// # Errors
///
/// Where the message is no row of that table, or the driver cannot make the struct of it.
#[doc(hidden)]
pub fn read_row<T: InboxTable>(incoming: Incoming<'_>) -> Result<T, String> {
    let row = incoming.fields::<InboxRow>().and_then(|row| row.row.as_ref());
    let Some((raw, decode)) = row else {
        let table = T::TABLE.table;
        return Err(format!("the message is no row of the table {table}"));
    };
    let decoded = decode(&**raw).map_err(|error| format!("the row cannot be read: {error}"))?;
    match decoded.downcast::<T>() {
        Ok(row) => Ok(*row),
        Err(_) => Err(format!("the message is a row of another table than {}", T::TABLE.table)),
    }
}

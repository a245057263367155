//! Tables of the user's own as queues: what their columns are for, and the work on them.
//!
//! All statements are made from the roles of the columns; one set serves all databases, but for how they write times, bytes and
//! names. What a handler gets of a row is decoded by the driver when it is handled.

mod layout;
mod open;
mod repository;
mod spec;
mod statements;
mod work;

pub(crate) use self::layout::Flavour;
pub(crate) use self::layout::Layout;
pub(crate) use self::open::{OpenTable, TableReader, Wanted, give_back, routed};
pub use self::repository::{Repository, TableDatabase};
pub use self::spec::{ColumnSpec, InboxTable, InsertRow, ReadRow, Role, TableSpec, read_row};
pub(crate) use self::spec::{Decode, decode};
pub(crate) use self::work::{Speaks, TableAnswer, TableWork, work};

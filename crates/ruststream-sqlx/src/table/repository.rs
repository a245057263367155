//! Rows that are inserted as their structs.

use std::fmt;
use std::marker::PhantomData;

use ruststream::transport::{ErrorKind, TransportError};
use sqlx::{Arguments as _, Database};

use super::layout::Flavour;
use super::open::layout;
use super::spec::InsertRow;
use super::statements::insert;
use super::work::{TableAnswer, TableWork};
use crate::connection::SqlxConnection;
use crate::engine::Engine;
use crate::operation::Operation;
use crate::publish::Stored;

/// The most values in one statement.
const VALUES: usize = 8_000;

/// A database whose tables can be queues: `Postgres`, `MySql` and `Sqlite`. No other can.
pub trait TableDatabase: sealed::Sealed + Send + Sync + 'static {
    /// The database of sqlx.
    type Sqlx: Database<Arguments: Send + Sync + 'static, Row: Send + Sync + 'static>;

    #[doc(hidden)]
    fn flavour() -> sealed::Way;
}

pub(crate) mod sealed {
    /// Keeps others out.
    pub trait Sealed {}

    /// How it writes.
    pub struct Way(pub(crate) super::Flavour);
}

#[cfg(feature = "postgres")]
impl sealed::Sealed for crate::Postgres {}
#[cfg(feature = "postgres")]
impl TableDatabase for crate::Postgres {
    type Sqlx = sqlx::Postgres;

    fn flavour() -> sealed::Way {
        sealed::Way(Flavour::Postgres)
    }
}

#[cfg(feature = "mysql")]
impl sealed::Sealed for crate::MySql {}
#[cfg(feature = "mysql")]
impl TableDatabase for crate::MySql {
    type Sqlx = sqlx::MySql;

    fn flavour() -> sealed::Way {
        sealed::Way(Flavour::MySql)
    }
}

#[cfg(feature = "sqlite")]
impl sealed::Sealed for crate::Sqlite {}
#[cfg(feature = "sqlite")]
impl TableDatabase for crate::Sqlite {
    type Sqlx = sqlx::Sqlite;

    fn flavour() -> sealed::Way {
        sealed::Way(Flavour::Sqlite)
    }
}

/// Inserts rows of a table of the user's own: messages for whoever reads it. Made by [`SqlxConnection::repository`].
pub struct Repository<T, D> {
    engine: Engine,
    row: PhantomData<fn(T, D)>,
}

impl SqlxConnection {
    /// A repository of the rows of a table. `D` is the database of this connection.
    ///
    /// # Errors
    ///
    /// Where the table or one of its columns is missing, and where the connection is one to another kind of database.
    pub async fn repository<T: InsertRow<D::Sqlx>, D: TableDatabase>(
        &self,
    ) -> Result<Repository<T, D>, TransportError> {
        let engine = self.engine().clone();
        let found = layout(&engine, T::TABLE).await?;
        if found.flavour != D::flavour().0 {
            return Err(TransportError::new(
                ErrorKind::Invalid,
                format!(
                    "{} is another kind of database than that of the repository",
                    engine.label()
                ),
            ));
        }
        Ok(Repository {
            engine,
            row: PhantomData,
        })
    }
}

impl<T: InsertRow<D::Sqlx>, D: TableDatabase> Repository<T, D> {
    /// Inserts a row. Where a unique key of the table refuses it, that is the answer, and no error.
    ///
    /// # Errors
    ///
    /// Where it could not be inserted.
    ///
    /// # Cancel safety
    ///
    /// A call dropped before it completes may have inserted it.
    pub async fn insert(&self, row: &T) -> Result<Stored, TransportError> {
        self.insert_group(std::slice::from_ref(row)).await
    }

    /// Inserts rows, many in one statement. A statement with a row that a unique key refuses inserts none of its rows, and that
    /// is an error here: to know which, insert them one by one.
    ///
    /// # Errors
    ///
    /// Where some could not be inserted; earlier ones may have been.
    ///
    /// # Cancel safety
    ///
    /// A call dropped before it completes may have inserted some.
    pub async fn insert_all(&self, rows: &[T]) -> Result<(), TransportError> {
        let columns = T::TABLE.columns.iter().filter(|column| !column.generated).count();
        for group in rows.chunks((VALUES / columns.max(1)).clamp(1, 500)) {
            if self.insert_group(group).await? == Stored::Duplicate {
                return Err(TransportError::new(
                    ErrorKind::Refused,
                    format!(
                        "a unique key of the table {} refuses one of {} rows; none of these is stored",
                        T::TABLE.table,
                        group.len()
                    ),
                ));
            }
        }
        Ok(())
    }

    async fn insert_group(&self, rows: &[T]) -> Result<Stored, TransportError> {
        let mut arguments = <D::Sqlx as Database>::Arguments::default();
        arguments.reserve(rows.len() * T::TABLE.columns.len(), 0);
        for row in rows {
            row.bind(&mut arguments).map_err(|error| {
                let table = T::TABLE.table;
                TransportError::new(
                    ErrorKind::Invalid,
                    format!("a row of {table} cannot be stored: {error}"),
                )
            })?;
        }
        let work = TableWork::Insert {
            text: insert(D::flavour().0, &T::TABLE, rows.len()),
            arguments: Box::new(arguments),
        };
        let answer = self.engine.ask(|reply| Operation::Table(work, reply)).await?;
        if matches!(answer, TableAnswer::Duplicate) {
            return Ok(Stored::Duplicate);
        }
        self.engine.tell_tables();
        Ok(Stored::New)
    }
}

impl<T, D> Clone for Repository<T, D> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            row: PhantomData,
        }
    }
}

impl<T, D> fmt::Debug for Repository<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository")
            .field("database", &self.engine.label())
            .finish_non_exhaustive()
    }
}

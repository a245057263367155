//! Publishing inside a transaction of the user's own.

use std::sync::Arc;

use ruststream::message::Outgoing;
use ruststream::transport::{PublishError, TransportError};

use crate::operation::NewRow;
use crate::publish::new_row;
use crate::source::check_name;

/// A connection that messages can be stored by: those of sqlx to Postgres and MySQL. No other can.
pub trait Stores: sealed::Sealed + Send {
    #[doc(hidden)]
    fn store(&mut self, rows: sealed::Rows) -> impl Future<Output = Result<(), TransportError>> + Send;
}

pub(crate) mod sealed {
    /// Keeps others out.
    pub trait Sealed {}

    /// Rows to be stored.
    pub struct Rows(pub(crate) Vec<crate::operation::NewRow>);
}

/// Stores messages in queues, by a connection of the user's own: inside its transaction, if one has begun. Who waits for them is told
/// when it commits, where the database can tell, and finds them by polling otherwise.
///
/// The tables have to be there: connect a broker to the database once, or make them by its `ddl()`.
///
/// # Errors
///
/// Where a name of a queue is impossible, or the database refuses a row: of Postgres the transaction is of no use then.
///
/// # Cancel safety
///
/// A call dropped before it completes may have stored some; the transaction decides.
///
/// # Examples
///
/// ```no_run
/// use ruststream::message::Outgoing;
/// use ruststream_sqlx::publish_in;
///
#[cfg_attr(
    feature = "postgres",
    doc = "# async fn example(mut tx: sqlx::Transaction<'_, sqlx::Postgres>) -> Result<(), Box<dyn std::error::Error>> {"
)]
#[cfg_attr(
    not(feature = "postgres"),
    doc = "# async fn example(mut tx: sqlx::Transaction<'_, sqlx::MySql>) -> Result<(), Box<dyn std::error::Error>> {"
)]
/// publish_in(&mut *tx, &[Outgoing::new("orders", b"{\"id\":1}")]).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub async fn publish_in<C: Stores>(connection: &mut C, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
    let rows = storable(messages)?;
    if rows.is_empty() {
        return Ok(());
    }
    Ok(connection.store(sealed::Rows(rows)).await?)
}

/// Messages as rows.
pub(crate) fn storable(messages: &[Outgoing<'_>]) -> Result<Vec<NewRow>, TransportError> {
    let row = |message: &Outgoing<'_>| {
        check_name(message.destination())?;
        Ok(new_row(Arc::from(message.destination()), message))
    };
    messages.iter().map(row).collect()
}

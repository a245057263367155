//! The parameter of a handler that is its transaction.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ruststream::handler::{Call, Extract};
use ruststream::message::Outgoing;
use ruststream::transport::{ErrorKind, PublishError, TransportError};
use tokio::sync::OwnedMutexGuard;

use super::bank::{Bank, BankSlot};
use super::{Begins, Open, Stores, publish_in};
use crate::fetch::InboxRow;
use crate::guard::Form;

/// A transaction of the handler's own: what it writes there commits together with the ack of its message, or not at all.
///
/// `D` is the database that the message comes from, [`Postgres`](crate::Postgres) or [`MySql`](crate::MySql). A handler that fails,
/// panics, is cut short or says retry has written nothing. One whose lease was lost meanwhile has written nothing either: the message
/// is someone else's by then. So each message takes effect exactly once, as far as its effects are in this database.
///
/// The transaction begins when the handler starts and lasts as long as it does, on a connection of its own: as many as there are
/// workers. It is for handlers of single messages.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
#[cfg_attr(feature = "postgres", doc = "use ruststream_sqlx::{Postgres, Tx};")]
#[cfg_attr(not(feature = "postgres"), doc = "use ruststream_sqlx::{MySql as Postgres, Tx};")]
///
/// #[subscriber("orders")]
/// async fn book(order: u64, mut tx: Tx<Postgres>) -> Result<(), sqlx::Error> {
///     sqlx::query("UPDATE stock SET pieces = pieces - 1").execute(&mut *tx).await?;
///     Ok(())
/// }
/// ```
pub struct Tx<D: Lends> {
    open: OwnedMutexGuard<Option<Open<D::Connection>>>,
}

/// A database that lends its transactions: `Postgres` and `MySql`. No other can.
pub trait Lends: Sized + Send + 'static + sealed::Sealed {
    /// What a handler runs its statements on.
    type Connection: Stores + Send + 'static;

    #[doc(hidden)]
    fn borrow(
        row: &InboxRow,
    ) -> impl Future<Output = Result<sealed::Borrowed<Self::Connection>, TransportError>> + Send;
}

pub(crate) mod sealed {
    use tokio::sync::OwnedMutexGuard;

    /// Keeps others out.
    pub trait Sealed {}

    /// A transaction that has begun.
    pub struct Borrowed<C>(pub(crate) OwnedMutexGuard<Option<super::Open<C>>>);
}

/// Borrows the transaction of a message, which begins with the first call.
pub(crate) async fn borrow<D: Begins>(row: &InboxRow) -> Result<sealed::Borrowed<D::Raw>, TransportError> {
    let Some(lender) = &row.lender else {
        return Err(no_transaction(
            "it comes from no database whose transactions can be borrowed",
        ));
    };
    let lender: Arc<dyn Any + Send + Sync> = Arc::clone(lender) as _;
    let Ok(bank) = lender.downcast::<Bank<D>>() else {
        return Err(no_transaction(
            "it comes from another kind of database than the `Tx` of its handler",
        ));
    };
    if row.terms.form == Form::RowLock {
        return Err(no_transaction(
            "its row is locked by another one, as `.row_lock()` says; with `.transactional()` it is locked by that of its handler",
        ));
    }
    let slot = row.slot.get_or_init(|| bank.slot((row.id, row.token), &row.terms));
    let Some(slot) = slot.as_any().downcast_ref::<BankSlot<D>>() else {
        return Err(no_transaction("its handler asks for transactions of two databases"));
    };
    Ok(sealed::Borrowed(slot.borrow().await?))
}

impl<D: Lends> Tx<D> {
    /// Stores messages in queues of this database, as a part of the transaction: they are there once it has committed.
    ///
    /// # Errors
    ///
    /// Where the database refuses them; the transaction is of no use then, and the handler should fail.
    ///
    /// # Cancel safety
    ///
    /// A call dropped before it completes may have stored some; the transaction decides.
    pub async fn publish(&mut self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let Some(open) = &mut *self.open else {
            return Err(ended().into());
        };
        publish_in(&mut open.connection, messages).await?;
        for message in messages {
            open.published.push(Arc::from(message.destination()));
        }
        Ok(())
    }
}

fn ended() -> TransportError {
    TransportError::new(ErrorKind::Closed, "the transaction has ended")
}

impl<D: Lends> Deref for Tx<D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        match &*self.open {
            Some(open) => &open.connection,
            None => unreachable!("a transaction is borrowed after it has begun, and ends when it is given back"),
        }
    }
}

impl<D: Lends> DerefMut for Tx<D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        match &mut *self.open {
            Some(open) => &mut open.connection,
            None => unreachable!("a transaction is borrowed after it has begun, and ends when it is given back"),
        }
    }
}

impl<D: Lends> fmt::Debug for Tx<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

impl<'a, S: Send + Sync, D: Lends> Extract<'a, S> for Tx<D> {
    type Rejection = TransportError;

    async fn extract(call: Call<'a, S>) -> Result<Self, TransportError> {
        let incoming = call.incoming();
        let Some(row) = incoming.fields::<InboxRow>() else {
            return Err(no_transaction("it comes from no table of this crate"));
        };
        let sealed::Borrowed(open) = D::borrow(row).await?;
        Ok(Self { open })
    }
}

fn no_transaction(why: &str) -> TransportError {
    TransportError::new(ErrorKind::Invalid, format!("the message lends no transaction: {why}"))
}

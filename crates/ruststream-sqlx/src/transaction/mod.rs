//! Transactions that handlers borrow: what they write commits together with the ack of their message, or not at all.
//!
//! A message is claimed under a lease like any other, so that many come by one claim and attempts are counted before the handler
//! runs. The transaction begins when the handler asks for it. Its ack is a delete in that transaction, by id and token: where the
//! lease was lost nothing is deleted, and all is rolled back. So two handlings of one message never both take effect, and no row
//! is locked while a handler works.

mod bank;
pub(crate) mod extract;
pub(crate) mod publish;

pub(crate) use bank::{Bank, Begins, Lender, Open, Slot};
pub use extract::{Lends, Tx};
pub use publish::{Stores, publish_in};

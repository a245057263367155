//! Orders are taken in from a queue in Postgres. Stock, booking and receipt are written in the transaction that also acks the order:
//! all of it happens once, or none of it, whatever is killed in between.
//!
//! ```text
//! export DATABASE_URL=postgres://postgres@localhost/postgres
//! cargo run -p order-intake                                      # takes orders in, until it is told to stop
//! cargo run -p order-intake --bin order tea 3                    # places one
//! cargo run -p order-intake dead-letters list                    # shows the orders that could not be booked, and why
//! cargo run -p order-intake dead-letters replay orders --id 7    # tries one of them again
//! ```

use order_intake::{Failure, app};
use ruststream::RustStream;

#[ruststream::app]
fn service() -> Result<RustStream, Failure> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the URL of a Postgres database")?;
    Ok(app(&url))
}

//! The service: one handler, one transaction.

use std::str::FromStr;

use ruststream::message::Outgoing;
use ruststream::prelude::*;
use ruststream_sqlx::{Inbox, Postgres, SqlxBroker, Tx};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Executor};

use crate::Failure;

/// The queue that orders come by.
pub(crate) const ORDERS: &str = "orders";

/// Where receipts go.
pub(crate) const RECEIPTS: &str = "receipts";

/// What a customer wants.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) article: String,
    pub(crate) pieces: i32,
}

/// Takes from the stock, books the order and publishes its receipt. All of it is in the transaction that acks the order.
#[subscriber("orders")]
async fn book(order: Order, mut tx: Tx<Postgres>) -> Result<(), Failure> {
    let taken = sqlx::query("UPDATE stock SET pieces = pieces - $2 WHERE article = $1 AND pieces >= $2")
        .bind(&order.article)
        .bind(order.pieces)
        .execute(&mut *tx)
        .await?;
    if taken.rows_affected() == 0 {
        return Err(format!("there are no {} pieces of {:?} left", order.pieces, order.article).into());
    }
    sqlx::query("INSERT INTO bookings (article, pieces) VALUES ($1, $2)")
        .bind(&order.article)
        .bind(order.pieces)
        .execute(&mut *tx)
        .await?;
    let receipt = serde_json::to_vec(&order)?;
    tx.publish(&[Outgoing::new(RECEIPTS, &receipt)]).await?;
    Ok(())
}

/// The service on a database.
pub(crate) fn app(database: SqlxBroker<Postgres>) -> RustStream {
    RustStream::new(AppInfo::new("order-intake", env!("CARGO_PKG_VERSION")))
        .with_broker(database, |broker| {
            broker
                .include(book)
                .source(Inbox::queue(ORDERS))
                .workers(8)
                .retry(Retry::exponential(Duration::from_millis(50)).attempts(3));
        })
        .build()
}

/// Makes the tables of the shop. Those of the queue the broker makes itself.
pub(crate) async fn prepare(url: &str) -> Result<(), Failure> {
    const TABLES: &str = "
        CREATE TABLE IF NOT EXISTS stock (article text PRIMARY KEY, pieces int NOT NULL);
        CREATE TABLE IF NOT EXISTS bookings (id bigint GENERATED ALWAYS AS IDENTITY, article text NOT NULL, pieces int NOT NULL);
        INSERT INTO stock VALUES ('tea', 100), ('coffee', 100) ON CONFLICT DO NOTHING";
    connect(url).await?.execute(TABLES).await?;
    Ok(())
}

pub(crate) async fn connect(url: &str) -> Result<PgConnection, Failure> {
    Ok(PgConnectOptions::from_str(url)?.connect().await?)
}

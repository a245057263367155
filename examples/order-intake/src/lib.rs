//! The service: one handler, one transaction.

#[cfg(test)]
mod tests;

use std::error::Error;
use std::str::FromStr;

use ruststream::message::Outgoing;
use ruststream::prelude::*;
use ruststream_sqlx::{Inbox, Postgres, SqlxBroker, Tx, publish_in};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection as _, Executor};

/// What went wrong, for a person.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The queue that orders come by.
const ORDERS: &str = "orders";

/// Where receipts go.
const RECEIPTS: &str = "receipts";

/// What a customer wants.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    article: String,
    pieces: i32,
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

/// The service on the database of this URL.
pub fn app(url: &str) -> RustStream {
    let tables = url.to_owned();
    RustStream::new(AppInfo::new("order-intake", env!("CARGO_PKG_VERSION")))
        .on_startup(async move || prepare(&tables).await)
        .with_broker(SqlxBroker::postgres(url), |broker| {
            broker
                .include(book)
                .source(Inbox::queue(ORDERS))
                .workers(8)
                .retry(Retry::exponential(Duration::from_millis(50)).attempts(3));
        })
        .build()
}

/// Places an order inside a transaction, as a shop would that writes something of its own besides.
///
/// # Errors
///
/// Where the database cannot be reached, or has no queue yet: the service makes it.
pub async fn place(url: &str, article: &str, pieces: i32) -> Result<(), Failure> {
    let order = Order {
        article: article.to_owned(),
        pieces,
    };
    let payload = serde_json::to_vec(&order)?;
    let mut connection = connect(url).await?;
    let mut tx = connection.begin().await?;
    publish_in(&mut *tx, &[Outgoing::new(ORDERS, &payload)]).await?;
    Ok(tx.commit().await?)
}

/// Makes the tables of the shop. Those of the queue the broker makes itself.
async fn prepare(url: &str) -> Result<(), Failure> {
    const TABLES: &str = "
        CREATE TABLE IF NOT EXISTS stock (article text PRIMARY KEY, pieces int NOT NULL);
        CREATE TABLE IF NOT EXISTS bookings (id bigint GENERATED ALWAYS AS IDENTITY, article text NOT NULL, pieces int NOT NULL);
        INSERT INTO stock VALUES ('tea', 100), ('coffee', 100) ON CONFLICT DO NOTHING";
    connect(url).await?.execute(TABLES).await?;
    Ok(())
}

async fn connect(url: &str) -> Result<PgConnection, Failure> {
    Ok(PgConnectOptions::from_str(url)?.connect().await?)
}

//! The shop: orders with their events, and bills.

use std::str::FromStr;

use ruststream::prelude::*;
use ruststream::transport::Broker;
use ruststream_sqlx::{Once, Outbox};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Executor, Sqlite, SqlitePool};

use crate::Failure;

/// What a customer wants.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) customer: String,
    pub(crate) article: String,
    pub(crate) pieces: i64,
}

/// What others are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Message)]
#[message(destination = "orders.placed")]
pub(crate) struct Placed {
    pub(crate) order: i64,
    pub(crate) customer: String,
    pub(crate) pieces: i64,
}

/// The database, and its outbox.
#[derive(Debug, Clone)]
pub(crate) struct Shop {
    pub(crate) pool: SqlitePool,
    pub(crate) outbox: Outbox<Sqlite>,
}

impl Shop {
    /// Opens the database at this URL, and makes its tables.
    pub(crate) async fn open(url: &str) -> Result<Self, Failure> {
        let memory = url.contains(":memory:");
        let options = SqliteConnectOptions::from_str(url)?;
        // Readers and the writer of a file do not wait for each other then.
        let options = if memory {
            options
        } else {
            options.journal_mode(SqliteJournalMode::Wal)
        };
        let connections = if memory { 1 } else { 4 };
        let pool = SqlitePoolOptions::new()
            .max_connections(connections)
            .connect_with(options)
            .await?;
        pool.execute(
            "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, article TEXT, pieces INTEGER) STRICT;
             CREATE TABLE IF NOT EXISTS bills (order_id INTEGER, pieces INTEGER) STRICT",
        )
        .await?;
        let outbox = Outbox::new(pool.clone());
        outbox.prepare().await?;
        Ok(Self { pool, outbox })
    }

    /// Places an order: its row and the event of it are written in one transaction.
    pub(crate) async fn place(&self, order: &Order) -> Result<i64, Failure> {
        let mut tx = self.pool.begin().await?;
        let id = sqlx::query("INSERT INTO orders (customer, article, pieces) VALUES (?, ?, ?)")
            .bind(&order.customer)
            .bind(&order.article)
            .bind(order.pieces)
            .execute(&mut *tx)
            .await?
            .last_insert_rowid();
        let placed = Placed {
            order: id,
            customer: order.customer.clone(),
            pieces: order.pieces,
        };
        // Events of one customer stay in their order.
        self.outbox.send(&mut tx, &placed).key(order.customer.clone()).await?;
        self.outbox.commit(tx).await?;
        Ok(id)
    }
}

/// Takes orders that come as messages.
#[subscriber("orders")]
pub(crate) async fn take(order: Order, State(shop): State<Shop>) -> Result<(), Failure> {
    if order.pieces < 1 {
        return Err(format!("{} orders {} pieces", order.customer, order.pieces).into());
    }
    shop.place(&order).await?;
    Ok(())
}

/// Bills an order, once: that the event was handled is written by the transaction that writes the bill.
#[subscriber("orders.placed")]
pub(crate) async fn bill(placed: Placed, once: Once, State(shop): State<Shop>) -> Result<(), Failure> {
    let mut tx = shop.pool.begin().await?;
    if !once.first(&mut *tx).await? {
        return Ok(());
    }
    sqlx::query("INSERT INTO bills (order_id, pieces) VALUES (?, ?)")
        .bind(placed.order)
        .bind(placed.pieces)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

/// The service, on any broker.
pub(crate) fn app(shop: Shop, broker: impl Broker) -> RustStream {
    let relay = shop.outbox.relay().attempts(5);
    let receipts = shop.outbox.receipts();
    RustStream::new(AppInfo::new("outbox-orders", env!("CARGO_PKG_VERSION")))
        .state(shop)
        .with_broker(broker, |broker| {
            let retry = Retry::exponential(Duration::from_millis(50));
            broker.include(take).retry(retry.clone().attempts(3));
            broker.include(bill).retry(retry.attempts(10));
        })
        .background(relay)
        .background(receipts)
        .build()
}

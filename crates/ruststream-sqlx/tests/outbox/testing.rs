//! `TestApp` runs a service with an outbox in memory: no file, no server, and `settled` waits for the relay too.

use std::str::FromStr;

use ruststream::prelude::*;
use ruststream::testing::TestApp;
use ruststream_sqlx::{Once, Outbox};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Executor, SqlitePool};

#[derive(Clone)]
struct Shop {
    pool: SqlitePool,
    outbox: Outbox<sqlx::Sqlite>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[subscriber("orders")]
async fn order(order: u64, State(shop): State<Shop>) -> Result<(), Failure> {
    let mut tx = shop.pool.begin().await?;
    sqlx::query("INSERT INTO orders (id) VALUES (?)")
        .bind(order.cast_signed())
        .execute(&mut *tx)
        .await?;
    shop.outbox
        .publish(&mut tx, "ordered", &order)
        .key(order.to_string())
        .await?;
    tx.commit().await?;
    Ok(())
}

#[subscriber("ordered")]
async fn bill(_order: u64, once: Once, State(shop): State<Shop>) -> Result<(), Failure> {
    let mut tx = shop.pool.begin().await?;
    if once.first(&mut *tx).await? {
        tx.execute("INSERT INTO bills DEFAULT VALUES").await?;
        tx.commit().await?;
    }
    Ok(())
}

#[tokio::test]
async fn settled_waits_for_what_the_relay_publishes_and_for_what_follows() {
    let options = SqliteConnectOptions::from_str("sqlite::memory:").unwrap();
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await
        .unwrap();
    pool.execute("CREATE TABLE orders (id INTEGER); CREATE TABLE bills (id INTEGER PRIMARY KEY)")
        .await
        .unwrap();
    let outbox = Outbox::new(pool.clone());
    outbox.prepare().await.unwrap();
    let shop = Shop {
        pool: pool.clone(),
        outbox: outbox.clone(),
    };
    let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
        .state(shop)
        .with_broker(MemoryBroker::new(), |broker| {
            broker.include(order);
            broker.include(bill);
        })
        .background(outbox.relay())
        .build();
    let test = TestApp::start(app).await.unwrap();
    for number in 1..=5_u64 {
        test.publish("orders", &number).await.unwrap();
    }
    test.settled().await;
    assert_eq!(test.published::<u64>("ordered"), [1, 2, 3, 4, 5]);
    assert_eq!(test.calls::<u64>("ordered").len(), 5);
    let bills: i64 = sqlx::query_scalar("SELECT count(*) FROM bills")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(bills, 5);
    assert_eq!(outbox.lag().await.unwrap().waiting, 0);
    test.shutdown().await.unwrap();
}

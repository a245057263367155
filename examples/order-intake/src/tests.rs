//! Orders are booked once each; what cannot be booked waits for someone to look at it.

use std::time::Duration;

use ruststream::transport::Broker;
use ruststream_sqlx::{SqlxBroker, SqlxConnection};
use servers::Kind;
use sqlx::{AssertSqlSafe, Executor};

use crate::{ORDERS, RECEIPTS, app, connect, place};

/// A schema of its own on the server that the tests share.
async fn database() -> String {
    let url = servers::shared(Kind::Postgres).unwrap();
    let schema = format!("intake_{}", std::process::id());
    let mut connection = connect(&url).await.unwrap();
    let create = format!("CREATE SCHEMA {schema}");
    connection.execute(AssertSqlSafe(create)).await.unwrap();
    format!("{url}?options[search_path]={schema}")
}

/// Waits until no order is left to be handled; answers how many could not be.
async fn drained(connection: &SqlxConnection) -> u64 {
    let draining = async {
        loop {
            let counts = connection.queue_counts(ORDERS).await.unwrap();
            if counts.ready + counts.leased + counts.scheduled == 0 {
                return counts.dead;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), draining).await.unwrap()
}

#[tokio::test]
async fn orders_are_booked_once_and_what_cannot_be_waits_for_someone() {
    let url = database().await;
    let running = app(&url).start().await.unwrap();
    let connection = SqlxBroker::postgres(&url).connect().await.unwrap();

    for _ in 0..20 {
        place(&url, "tea", 5).await.unwrap();
    }
    place(&url, "coffee", 300).await.unwrap();
    assert_eq!(drained(&connection).await, 1);

    let mut plain = connect(&url).await.unwrap();
    let mut number = async |sql: &'static str| -> i64 {
        let query = sqlx::query_scalar(sql);
        query.fetch_one(&mut plain).await.unwrap()
    };
    assert_eq!(number("SELECT count(*) FROM bookings").await, 20);
    assert_eq!(
        number("SELECT pieces::bigint FROM stock WHERE article = 'tea'").await,
        0
    );
    assert_eq!(connection.queue_counts(RECEIPTS).await.unwrap().ready, 20);

    // Someone looks, fills up the stock, and lets it be tried again.
    let letters = connection.dead_letters().list(ORDERS, 10).await.unwrap();
    assert!(letters[0].error.contains("no 300 pieces"), "{}", letters[0].error);
    assert_eq!(letters[0].attempts, 3);
    assert_eq!(
        number("UPDATE stock SET pieces = 300 WHERE article = 'coffee' RETURNING pieces::bigint").await,
        300
    );
    assert!(connection.dead_letters().replay(letters[0].id).await.unwrap());
    assert_eq!(drained(&connection).await, 0);
    assert_eq!(
        number("SELECT count(*) FROM bookings WHERE article = 'coffee'").await,
        1
    );
    running.shutdown().await.unwrap();
}

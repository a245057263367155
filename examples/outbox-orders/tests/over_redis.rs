//! The outbox over a broker of another kind: from tables of each database to a stream of Redis, by way of a link that is cut.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::conformance::unique_name;
use ruststream::prelude::*;
use ruststream_fred::RedisBroker;
use ruststream_sqlx::{Outbox, OutboxDatabase};
use servers::{Kind, Proxy};
use sqlx::{AssertSqlSafe, Executor, MySqlPool, PgPool, Pool, SqlitePool};

/// Nothing here takes so long: what does is stuck.
const PATIENCE: Duration = Duration::from_mins(1);

/// The events of each key, each once, in the order in which they first came.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<BTreeMap<String, Vec<u64>>>>);

#[subscriber("events")]
async fn note(number: u64, key: Headers<Key>, State(book): State<Book>) {
    let mut book = book.0.lock().unwrap();
    let known = book.entry(key.0.customer).or_default();
    if !known.contains(&number) {
        known.push(number);
    }
}

#[derive(Deserialize)]
struct Key {
    customer: String,
}

async fn from_tables_to_a_stream<DB: OutboxDatabase>(pool: Pool<DB>) {
    let redis = servers::shared(Kind::Redis).unwrap();
    let (_, port) = redis.trim_end_matches('/').rsplit_once(':').unwrap();
    let port: u16 = port.split('/').next().unwrap().parse().unwrap();
    let proxy = Proxy::to(port).unwrap();
    let broker = RedisBroker::standalone(format!("redis://127.0.0.1:{}", proxy.port())).group("billing");
    let stream = unique_name();
    let outbox = Outbox::new(pool.clone());
    outbox.prepare().await.unwrap();
    let book = Book::default();
    let relay = outbox
        .relay()
        .poll_interval(Duration::from_millis(20))
        .attempts(2)
        .workers(2);
    let running = RustStream::new(AppInfo::new("shop", "1.0.0"))
        .state(book.clone())
        .with_broker(broker, |broker| {
            broker.include(note).source(ruststream_fred::RedisStream::new(&stream));
        })
        .background(relay)
        .start()
        .await
        .unwrap();
    for round in 0..6_u64 {
        let mut tx = pool.begin().await.unwrap();
        for key in ["ada", "bob", "cy"] {
            let messages = (round * 20 + 1..=round * 20 + 20)
                .map(|number| outbox.message(stream.clone(), &number).key(key).header("customer", key));
            outbox.publish_all(&mut tx, messages).await.unwrap();
        }
        outbox.commit(tx).await.unwrap();
        match round {
            1 | 3 => proxy.cut(),
            // The broker is away for longer than two attempts take.
            4 => {
                proxy.refuse();
                proxy.cut();
                tokio::time::sleep(Duration::from_millis(1500)).await;
                proxy.heal();
            }
            _ => tokio::time::sleep(Duration::from_millis(30)).await,
        }
    }
    let all = async {
        loop {
            let complete = {
                let book = book.0.lock().unwrap();
                book.len() == 3 && book.values().all(|numbers| numbers.len() == 120)
            };
            if complete {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all)
        .await
        .expect("some event did not come");
    let expected: Vec<u64> = (1..=120).collect();
    for (key, numbers) in &*book.0.lock().unwrap() {
        assert_eq!(numbers, &expected, "{key}");
    }
    let lag = outbox.lag().await.unwrap();
    assert_eq!(lag.parked, 0, "a broker that is away parks nothing");
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_a_file_to_redis() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", directory.path().join("shop.db").display());
    from_tables_to_a_stream(SqlitePool::connect(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_postgres_to_redis() {
    let url = servers::shared(Kind::Postgres).unwrap();
    let schema = unique_name().replace('-', "_");
    let create = format!("CREATE SCHEMA {schema}");
    let pool = PgPool::connect(&url).await.unwrap();
    pool.execute(AssertSqlSafe(create)).await.unwrap();
    let url = format!("{url}?options[search_path]={schema}");
    from_tables_to_a_stream(PgPool::connect(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_mariadb_to_redis() {
    let url = servers::shared(Kind::Maria).unwrap();
    let database = unique_name().replace('-', "_");
    let create = format!("CREATE DATABASE {database}");
    MySqlPool::connect(&url)
        .await
        .unwrap()
        .execute(AssertSqlSafe(create))
        .await
        .unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    from_tables_to_a_stream(MySqlPool::connect(&format!("{server}/{database}")).await.unwrap()).await;
}

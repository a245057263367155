//! Leases of healthy handlers are never lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ruststream::prelude::*;
use ruststream_sqlx::Inbox;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use crate::kit::{Job, Place, Queue, SECOND, Work, attempts, ends, of, publish};
use crate::place::Place as File;
use crate::support::eventually;

/// C03: handlers that work four times their lease run once each, though another node waits for the same messages.
#[tokio::test]
async fn handlers_that_work_longer_than_their_lease_run_once() {
    let place = Place::new().await;
    let queue = Queue::new("jobs").workers(10).lease(SECOND);
    let first = place.start(&place.service("a").reads(queue.clone())).await;
    let second = place.start(&place.service("b").reads(queue)).await;
    place.publish("jobs", &Job::many(1..=20, &Work::Wait(4000))).await;

    place.side.ended(20).await;
    assert_eq!(place.drained("jobs").await, 0);
    first.stop().await;
    second.stop().await;

    let lines = place.side.lines();
    for id in 1..=20 {
        assert_eq!((attempts(&lines, id), ends(&lines, id)), (vec![1], 1), "message {id}");
    }
    assert!(of(&lines, "stale").all(|line| line.id == 0), "no receipt came too late");
}

#[derive(Debug, Clone)]
struct Shop {
    pool: SqlitePool,
    calls: Arc<AtomicUsize>,
}

#[subscriber("orders")]
async fn book(order: u64, State(shop): State<Shop>) -> Result<(), sqlx::Error> {
    shop.calls.fetch_add(1, Ordering::SeqCst);
    let order = order.cast_signed();
    sqlx::query("INSERT INTO shop (number) VALUES (?)")
        .bind(order)
        .execute(&shop.pool)
        .await?;
    sqlx::query("SELECT count(*) FROM shop WHERE number = ?")
        .bind(order)
        .fetch_one(&shop.pool)
        .await?;
    Ok(())
}

/// C09: handlers that write to the same file over a small pool of their own starve no lease.
#[tokio::test]
async fn handlers_with_a_small_pool_on_the_same_file_starve_no_lease() {
    let file = File::new().await;
    let connection = file.connect().await;
    file.sql("CREATE TABLE shop (number INTEGER NOT NULL)").await;
    let options = SqliteConnectOptions::new()
        .filename(file.path())
        .busy_timeout(Duration::from_secs(10));
    let shop = Shop {
        pool: SqlitePoolOptions::new()
            .max_connections(2)
            .connect_with(options)
            .await
            .unwrap(),
        calls: Arc::default(),
    };
    let orders: Vec<u64> = (0..500).collect();

    let running = RustStream::new(AppInfo::new("case", "1.0.0"))
        .state(shop.clone())
        .with_broker(file.broker(), |broker| {
            let inbox = Inbox::queue("orders").lease(SECOND);
            broker.include(book).source(inbox).workers(32);
        })
        .start()
        .await
        .unwrap();
    for part in orders.chunks(50) {
        publish(&connection, "orders", part).await;
    }
    eventually(
        async || running.health().subscriptions.remove(0),
        |health| health.acked == 500 && health.in_hand == 0,
    )
    .await;

    let health = running.health().subscriptions.remove(0);
    assert_eq!((health.stale, health.failed, health.retried), (0, 0, 0));
    assert_eq!(shop.calls.load(Ordering::SeqCst), 500);
    assert_eq!(file.number("SELECT count(DISTINCT number) FROM shop").await, 500);
    assert_eq!(file.number("SELECT count(*) FROM ruststream_messages").await, 0);
    running.shutdown().await.unwrap();
    shop.pool.close().await;
}

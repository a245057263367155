//! What a handler writes by its transaction commits together with the ack of its message, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ruststream::app::Running;
use ruststream::message::Outgoing;
use ruststream::prelude::*;
use ruststream::transport::{Broker, PublishError};
use ruststream_sqlx::{Inbox, Isolation, Tx, publish_in};
use sqlx::{AssertSqlSafe, Connection as _, Executor};
use tokio::sync::Semaphore;

use crate::place::{Database, Place};
use crate::support::{eventually, publish, publish_numbers};

#[derive(Clone)]
struct Shop {
    calls: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

impl Shop {
    fn new(open: usize) -> Self {
        Self {
            calls: Arc::default(),
            open: Arc::new(Semaphore::new(open)),
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Writes, and fails afterwards in each first attempt at an odd number.
#[subscriber("orders")]
async fn book(order: u64, mut tx: Tx<Database>, context: Context<'_>, State(shop): State<Shop>) -> Result<(), Failure> {
    shop.calls.fetch_add(1, Ordering::SeqCst);
    let insert = format!("INSERT INTO effects (id) VALUES ({order})");
    tx.execute(AssertSqlSafe(insert)).await?;
    let receipt = order.to_string();
    tx.publish(&[Outgoing::new("receipts", receipt.as_bytes())]).await?;
    let _open = shop.open.acquire().await?;
    if order % 2 == 1 && context.attempt() == 1 {
        return Err("the first time it fails".into());
    }
    Ok(())
}

async fn place() -> Place {
    let place = Place::new().await;
    place.sql("CREATE TABLE effects (id BIGINT NOT NULL)").await;
    place
}

async fn service(place: &Place, shop: &Shop, limit: Option<Duration>) -> Running {
    RustStream::new(AppInfo::new("transactions", "1.0.0"))
        .state(shop.clone())
        .with_broker(place.broker(), |broker| {
            let subscription = broker.include(book).source(Inbox::queue("orders"));
            subscription
                .workers(8)
                .retry(Retry::fixed(Duration::from_millis(5)).attempts(5));
            if let Some(limit) = limit {
                subscription.timeout(limit);
            }
        })
        .start()
        .await
        .unwrap()
}

async fn effects(place: &Place) -> (i64, i64) {
    (
        place.number("SELECT count(*) FROM effects").await,
        place.number("SELECT count(DISTINCT id) FROM effects").await,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_replies_and_acks_commit_together() {
    let place = place().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 200).await;
    let shop = Shop::new(8);
    let running = service(&place, &shop, None).await;
    let left = async || connection.queue_counts("orders").await.unwrap();
    eventually(left, |counts| counts.ready + counts.leased + counts.scheduled == 0).await;
    running.shutdown().await.unwrap();

    assert_eq!(shop.calls.load(Ordering::SeqCst), 300, "half of them failed once");
    assert_eq!(effects(&place).await, (200, 200));
    assert_eq!(connection.queue_counts("receipts").await.unwrap().ready, 200);
    assert_eq!(connection.queue_counts("orders").await.unwrap().dead, 0);
}

/// A retry that keeps its place is handled with the message in hand: what the attempt before wrote is undone first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_in_order_takes_effect_once() {
    let place = place().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 20).await;
    let shop = Shop::new(8);
    let running = RustStream::new(AppInfo::new("transactions", "1.0.0"))
        .state(shop.clone())
        .with_broker(place.broker(), |broker| {
            let subscription = broker.include(book).source(Inbox::queue("orders"));
            let order = OrderBy::message(|order: &u64| *order / 4);
            subscription
                .workers(8)
                .ordered_by(order)
                .retry(Retry::fixed(Duration::from_millis(5)).attempts(5));
        })
        .start()
        .await
        .unwrap();
    let left = async || connection.queue_counts("orders").await.unwrap();
    eventually(left, |counts| counts.ready + counts.leased + counts.scheduled == 0).await;
    running.shutdown().await.unwrap();

    assert_eq!(shop.calls.load(Ordering::SeqCst), 30, "half of them failed once");
    assert_eq!(effects(&place).await, (20, 20));
    assert_eq!(connection.queue_counts("receipts").await.unwrap().ready, 20);
    assert_eq!(connection.queue_counts("orders").await.unwrap().dead, 0);
}

/// A dead letter in a place of the author's own is acked in the end: its handler failed all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_in_a_named_place_has_no_effect() {
    let place = place().await;
    let connection = place.connect().await;
    publish(&connection, "orders", &[b"1", b"3", b"5"]).await;
    let shop = Shop::new(8);
    let running = RustStream::new(AppInfo::new("transactions", "1.0.0"))
        .state(shop.clone())
        .with_broker(place.broker(), |broker| {
            let subscription = broker.include(book).source(Inbox::queue("orders"));
            subscription.retry(Retry::never()).dead_letter("graveyard");
        })
        .start()
        .await
        .unwrap();
    let buried = async || connection.queue_counts("graveyard").await.unwrap().ready;
    eventually(buried, |buried| *buried == 3).await;
    let left = async || connection.queue_counts("orders").await.unwrap();
    eventually(left, |counts| counts.ready + counts.leased == 0).await;
    running.shutdown().await.unwrap();

    assert_eq!(shop.calls.load(Ordering::SeqCst), 3);
    assert_eq!(effects(&place).await, (0, 0));
    assert_eq!(connection.queue_counts("receipts").await.unwrap().ready, 0);
    eventually(async || place.open_transactions().await, |open| *open == 0).await;
}

/// Whose lease was lost has written nothing: the message and its effects are someone else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_undoes_what_its_handler_wrote() {
    let place = place().await;
    let connection = place.connect().await;
    publish(&connection, "orders", &[b"2"]).await;
    let shop = Shop::new(0);
    let running = service(&place, &shop, None).await;
    eventually(async || shop.calls.load(Ordering::SeqCst), |calls| *calls == 1).await;

    let rob = "UPDATE ruststream_messages SET token = 5 WHERE queue = 'orders'";
    place.sql(rob).await;
    shop.open.add_permits(8);

    let stale = async || running.health().subscriptions[0].stale;
    eventually(stale, |stale| *stale == 1).await;
    assert_eq!(effects(&place).await, (0, 0));
    assert_eq!(connection.queue_counts("receipts").await.unwrap().ready, 0);
    assert_eq!(connection.queue_counts("orders").await.unwrap().leased, 1);
    running.shutdown().await.unwrap();
}

/// C08: a handler that is cut short in the middle of a statement leaves no transaction open behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_cut_short_leave_nothing_open() {
    let place = place().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 60).await;
    let shop = Shop::new(0);
    // As long as no permit is there, every call is cut short: most while they wait, some in a statement.
    let running = service(&place, &shop, Some(Duration::from_millis(7))).await;
    let dead = async || connection.queue_counts("orders").await.unwrap().dead;
    eventually(dead, |dead| *dead == 60).await;
    assert_eq!(effects(&place).await, (0, 0));
    assert_eq!(place.open_transactions().await, 0);
    running.shutdown().await.unwrap();

    shop.open.add_permits(8);
    let running = service(&place, &shop, None).await;
    connection.dead_letters().replay_queue("orders").await.unwrap();
    let left = async || connection.queue_counts("orders").await.unwrap();
    eventually(left, |counts| counts.ready + counts.leased + counts.scheduled == 0).await;
    running.shutdown().await.unwrap();
    assert_eq!(effects(&place).await, (60, 60));
}

#[tokio::test]
async fn messages_are_published_inside_a_transaction_of_the_users_own() {
    let place = place().await;
    let connection = place.broker().connect().await.unwrap();
    let mut plain = place.plain().await;
    for (commit, wanted) in [(false, 0), (true, 70)] {
        let mut tx = plain.begin().await.unwrap();
        let messages = vec![Outgoing::new("orders", b"1"); 70];
        publish_in(&mut *tx, &messages).await.unwrap();
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(connection.queue_counts("orders").await.unwrap().ready, wanted);
    }
    let refused: PublishError = publish_in(&mut plain, &[Outgoing::new("", b"1")]).await.unwrap_err();
    assert!(refused.to_string().contains("empty"), "{refused}");
}

/// Writes, and answers into the same database.
#[subscriber("orders", reply = "receipts")]
async fn confirm(order: u64, mut tx: Tx<Database>, State(shop): State<Shop>) -> Result<u64, Failure> {
    shop.calls.fetch_add(1, Ordering::SeqCst);
    let insert = format!("INSERT INTO effects (id) VALUES ({order})");
    tx.execute(AssertSqlSafe(insert)).await?;
    let _open = shop.open.acquire().await?;
    Ok(order)
}

async fn transactional(place: &Place, shop: &Shop, inbox: Inbox) -> Running {
    RustStream::new(AppInfo::new("transactions", "1.0.0"))
        .state(shop.clone())
        .with_broker(place.broker(), |broker| {
            broker
                .include(confirm)
                .source(inbox)
                .workers(4)
                .retry(Retry::fixed(Duration::from_millis(5)).attempts(5));
        })
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_transactional_mode_no_one_else_gets_a_message_whatever_its_lease() {
    let place = place().await;
    let connection = place.connect().await;
    publish(&connection, "orders", &[b"1"]).await;
    let shop = Shop::new(0);
    let inbox = Inbox::queue("orders")
        .transactional()
        .isolation(Isolation::Serializable);
    let running = transactional(&place, &shop, inbox).await;
    eventually(async || shop.calls.load(Ordering::SeqCst), |calls| *calls == 1).await;
    // As if the lease had ended: the row is locked in the transaction of its handler.
    let free = "SELECT count(*) FROM (SELECT id FROM ruststream_messages WHERE queue = 'orders' FOR UPDATE SKIP LOCKED) AS free";
    assert_eq!(place.number(free).await, 0);
    shop.open.add_permits(4);
    let receipts = async || connection.queue_counts("receipts").await.unwrap().ready;
    eventually(receipts, |ready| *ready == 1).await;
    assert_eq!(effects(&place).await, (1, 1));
    running.shutdown().await.unwrap();
}

/// A transaction that fails when it commits, each time, ends as a dead letter with its reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_never_commits_becomes_a_dead_letter() {
    let place = place().await;
    let connection = place.connect().await;
    for statement in Place::NO_RECEIPTS {
        place.sql(statement).await;
    }
    publish(&connection, "orders", &[b"7"]).await;
    // So often it was handed out already.
    place.sql("UPDATE ruststream_messages SET attempt = 9").await;
    let shop = Shop::new(8);
    let running = transactional(&place, &shop, Inbox::queue("orders").transactional()).await;
    let dead = async || connection.dead_letters().list("orders", 10).await.unwrap();
    let dead = eventually(dead, |dead| dead.len() == 1).await;
    assert!(dead[0].error.contains("does not commit"), "{}", dead[0].error);
    assert_eq!(dead[0].attempts, 10);
    assert_eq!(effects(&place).await, (0, 0));
    assert_eq!(connection.queue_counts("receipts").await.unwrap().ready, 0);
    running.shutdown().await.unwrap();
}

//! Files that are no queue, files of other versions, files that are full: a clear error, and nothing lost.

use std::time::Duration;

use ruststream::message::Outgoing;
use ruststream::transport::{
    Broker, Connection, DeadLetter, DeadReason, Delivery, ErrorKind, Publish, Settle, Source, TransportError, Verdict,
};
use ruststream_sqlx::{Inbox, SqlxBroker, Synchronous};
use sqlx::{Connection as _, Executor};

use crate::place::Place;
use crate::support::{self, numbers, payloads, publish, publish_numbers, receipts, subscribe};

async fn refused(broker: SqlxBroker) -> TransportError {
    let connected = tokio::time::timeout(support::PATIENCE, broker.connect()).await;
    let error = connected.expect("it hung").expect_err("it was taken");
    assert!(!error.is_transient(), "{error:?}");
    error
}

fn says(error: &TransportError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let file = Place::here();
    let text = "these are my notes, and they are long enough to be no database header at all. ".repeat(20);
    std::fs::write(file.path(), &text).unwrap();
    let error = refused(file.broker()).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    says(&error, &["queue.db", "not an SQLite database", "name another file"]);
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), text);
}

#[tokio::test]
async fn a_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = refused(SqlxBroker::sqlite(directory.path())).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    says(&error, &["is a directory", "name a file in it"]);
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = refused(SqlxBroker::sqlite(directory.path().join("a/b/queue.db"))).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    says(&error, &["a/b does not exist", "create it first"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_place_where_nothing_can_be_written_is_named() {
    // Not even the super-user can write here.
    let error = refused(SqlxBroker::sqlite("/proc/queue.db")).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    says(&error, &["/proc/queue.db", "write access"]);
}

#[tokio::test]
async fn a_name_that_is_no_file_is_refused() {
    for name in [":memory:", "", "sqlite::memory:", "sqlite:queue.db?mode=ro"] {
        let error = refused(SqlxBroker::sqlite(name)).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
        says(&error, &[&format!("{name:?}")]);
    }
}

#[tokio::test]
async fn a_newer_table_is_refused_with_both_versions_and_the_fix() {
    let file = Place::here();
    file.connect().await.close().await;
    file.sql("UPDATE ruststream_meta SET version = 7").await;
    let error = refused(file.broker()).await;
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    says(&error, &["queue.db", "version 7", "up to 2", "upgrade ruststream-sqlx"]);
    file.sql("UPDATE ruststream_meta SET version = 2").await;
    file.connect().await.close().await;
}

#[tokio::test]
async fn a_table_of_that_name_that_is_not_ours_is_refused_and_left_alone() {
    let file = Place::here();
    file.sql("CREATE TABLE ruststream_messages (mine TEXT); INSERT INTO ruststream_messages VALUES ('kept')")
        .await;
    let error = refused(file.broker()).await;
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    says(&error, &["already a table ruststream_messages", "name another file"]);
    assert_eq!(file.number("SELECT count(*) FROM ruststream_messages").await, 1);
}

#[tokio::test]
async fn other_tables_of_the_file_are_no_business_of_ours() {
    let file = Place::here();
    file.sql("PRAGMA journal_mode = DELETE; CREATE TABLE customers (id INTEGER); INSERT INTO customers VALUES (7)")
        .await;
    let connection = file.connect().await;
    publish(&connection, "orders", &[b"x"]).await;
    assert_eq!(file.number("SELECT id FROM customers").await, 7);
}

#[tokio::test]
async fn ten_connections_that_start_at_once_make_one_table() {
    for round in 0..5 {
        let file = Place::here();
        let mut starting = tokio::task::JoinSet::new();
        for starter in 0..10_usize {
            let broker = file.broker();
            starting.spawn(async move {
                let connection = broker
                    .connect()
                    .await
                    .unwrap_or_else(|error| panic!("{round}: {error:?}"));
                publish(&connection, "orders", &[starter.to_string().as_bytes()]).await;
                connection
            });
        }
        let connections = starting.join_all().await;
        let mut orders = subscribe(&connections[0], "orders").await;
        let mut seen = payloads(&orders.take(10).await);
        seen.sort();
        assert_eq!(seen, numbers(0..10));
    }
}

#[tokio::test]
async fn only_the_message_that_is_too_large_fails() {
    let file = Place::here();
    let connection = file.broker().max_payload(100).connect().await.unwrap();
    let large = [b'x'; 101];
    let messages = [
        Outgoing::new("orders", b"0"),
        Outgoing::new("orders", &large),
        Outgoing::new("", b"nowhere"),
        Outgoing::new("orders", b"1"),
    ];

    let error = connection.publisher().publish(&messages).await.unwrap_err();

    assert!(error.for_message(0).is_none() && error.for_message(3).is_none());
    let too_large = error.for_message(1).unwrap();
    assert!(too_large.is_too_large());
    says(too_large, &["101 bytes", "limit is 100", "max_payload"]);
    assert_eq!(error.for_message(2).unwrap().kind(), ErrorKind::Invalid);
    let mut orders = subscribe(&connection, "orders").await;
    assert_eq!(payloads(&orders.take(2).await), ["0", "1"]);
}

#[tokio::test]
async fn a_row_that_the_file_refuses_fails_alone() {
    let file = Place::here();
    let connection = file.connect().await;
    file.sql(
        "CREATE TRIGGER no_bad BEFORE INSERT ON ruststream_messages WHEN NEW.payload = x'626164' \
         BEGIN SELECT raise(ABORT, 'bad is bad'); END",
    )
    .await;
    let messages = [b"one", b"bad", b"two"].map(|payload| Outgoing::new("orders", payload));
    let publisher = connection.publisher();
    let alone = Outgoing::new("orders", b"six");
    let others = async {
        for _ in 0..20 {
            publisher.publish(&[alone]).await.unwrap();
        }
    };

    let (failed, ()) = tokio::join!(publisher.publish(&messages), others);

    let failed = failed.unwrap_err();
    assert!(failed.for_message(0).is_none() && failed.for_message(2).is_none());
    assert_eq!(failed.for_message(1).unwrap().kind(), ErrorKind::Refused);
    says(failed.for_message(1).unwrap(), &["bad is bad"]);
    assert_eq!(file.number("SELECT count(*) FROM ruststream_messages").await, 22);
}

#[tokio::test]
async fn a_receipt_that_the_file_refuses_stays_and_the_others_are_settled() {
    let file = Place::here();
    let connection = file.connect().await;
    publish_numbers(&connection, "orders", 4).await;
    let mut orders = subscribe(&connection, "orders").await;
    let mut finished = receipts(orders.take(4).await, &Verdict::Ack);
    file.sql(
        "CREATE TRIGGER no_dead BEFORE UPDATE ON ruststream_messages WHEN NEW.state = 1 \
         BEGIN SELECT raise(ABORT, 'no dead letters here'); END",
    )
    .await;
    finished[2].1 = dead("x");

    let error = orders.settle.settle(&mut finished).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(finished.len(), 1);
    assert!(matches!(finished[0].1, Verdict::DeadLetter(_)));
    assert_eq!(file.number("SELECT count(*) FROM ruststream_messages").await, 1);
    file.sql("DROP TRIGGER no_dead").await;
    assert_eq!(orders.settle.settle(&mut finished).await.unwrap().stale, 0);
    assert_eq!(connection.queue_counts("orders").await.unwrap().dead, 1);
}

fn dead(error: &str) -> Verdict {
    Verdict::DeadLetter(Box::new(DeadLetter {
        reason: DeadReason::Rejected,
        error: error.to_owned(),
        attempts: 1,
        source: "orders".to_owned(),
        at: std::time::SystemTime::now(),
    }))
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_passes_and_loses_nothing() {
    let file = Place::here();
    let connection = file.broker().pragma("max_page_count", "200").connect().await.unwrap();
    let large = vec![b'x'; 20_000];
    let mut stored = 0;
    let full = loop {
        match connection.publisher().publish(&[Outgoing::new("orders", &large)]).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(stored > 10);
    assert_eq!(full.first().kind(), ErrorKind::Busy);
    says(full.first(), &["full", "make room"]);

    // Given: two messages in hand, one to be acked, and one whose error text needs room that is not there.
    let mut orders = subscribe(&connection, "orders").await;
    let mut finished = receipts(orders.take(3).await, &Verdict::Ack);
    finished[0].1 = dead(&"e".repeat(60_000));
    finished[1].1 = dead(&"e".repeat(60_000));
    let kept = finished.pop().unwrap();

    let error = orders.settle.settle(&mut finished).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.is_transient());
    assert!(!finished.is_empty());
    assert_eq!(file.number("SELECT count(*) FROM ruststream_messages").await, stored);
    // When room is made, by handling others, it works again.
    let others = orders.take(8).await;
    orders.ack(others).await;
    orders.settle.settle(&mut finished).await.unwrap();
    assert!(finished.is_empty());
    let mut finished = vec![kept];
    orders.settle.settle(&mut finished).await.unwrap();
    assert_eq!(connection.queue_counts("orders").await.unwrap().dead, 2);
    publish(&connection, "orders", &[b"small"]).await;
}

#[tokio::test]
async fn a_file_that_someone_holds_is_busy_for_as_long_as_the_setting_says_and_works_after() {
    let file = Place::here();
    let connection = file
        .broker()
        .busy_timeout(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    publish(&connection, "orders", &[b"0"]).await;
    let mut orders = subscribe(&connection, "orders").await;
    let mut finished = receipts(orders.take(1).await, &Verdict::Ack);
    let mut holder = file.plain().await;
    holder.execute("BEGIN IMMEDIATE").await.unwrap();

    let start = tokio::time::Instant::now();
    let error = orders.settle.settle(&mut finished).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Busy);
    says(&error, &["locked by another writer"]);
    assert!(start.elapsed() >= Duration::from_millis(200) && start.elapsed() < Duration::from_secs(2));
    assert_eq!(finished.len(), 1);
    assert!(connection.statistics().busy_retries > 3);
    // A short hold is waited for.
    let settling = orders.settle.settle(&mut finished);
    let release = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        holder.execute("COMMIT").await.unwrap();
    };
    let (settled, ()) = tokio::join!(settling, release);
    assert_eq!(settled.unwrap().stale, 0);
    assert!(finished.is_empty());
}

#[tokio::test]
async fn a_file_that_was_replaced_is_an_error_once_and_opened_anew() {
    let file = Place::here();
    let connection = file.connect().await;
    publish(&connection, "orders", &[b"old"]).await;
    let mut orders = subscribe(&connection, "orders").await;
    let got = orders.take(1).await;
    for name in ["queue.db", "queue.db-wal", "queue.db-shm"] {
        std::fs::remove_file(file.path().with_file_name(name)).unwrap();
    }

    let error = connection
        .publisher()
        .publish(&[Outgoing::new("orders", b"lost?")])
        .await
        .unwrap_err();

    assert_eq!(error.first().kind(), ErrorKind::Unavailable);
    says(error.first(), &["queue.db", "replaced"]);
    publish(&connection, "orders", &[b"new"]).await;
    assert_eq!(payloads(&orders.take(1).await), ["new"]);
    assert_eq!(orders.ack(got).await.stale, 1);
    assert_eq!(connection.statistics().opened, 2);
}

#[tokio::test]
async fn who_waits_on_a_file_that_was_replaced_is_told() {
    let file = Place::here();
    let connection = file.connect().await;
    let mut orders = subscribe(&connection, "orders").await;
    assert!(orders.finds_nothing().await);
    std::fs::rename(file.path(), file.path().with_file_name("gone.db")).unwrap();
    let mut into = Vec::new();
    let fetched = ruststream::transport::Fetch::fetch(&mut orders.fetch, 1, &mut into);
    let error = tokio::time::timeout(support::PATIENCE, fetched)
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn a_closed_connection_says_so_and_its_file_is_whole() {
    let file = Place::here();
    let connection = file.connect().await;
    publish(&connection, "orders", &[b"x"]).await;
    let mut orders = subscribe(&connection, "orders").await;
    let got = orders.take(1).await;
    let mut waiting = subscribe(&connection, "others").await;
    let waiting = tokio::spawn(async move {
        let mut into = Vec::new();
        ruststream::transport::Fetch::fetch(&mut waiting.fetch, 1, &mut into).await
    });
    connection.ping().await.unwrap();

    connection.close().await;
    connection.close().await;

    assert_eq!(connection.ping().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    let mut finished = receipts(got, &Verdict::Ack);
    let error = orders.settle.settle(&mut finished).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(finished.len(), 1);
    assert!(
        connection
            .publisher()
            .publish(&[Outgoing::new("orders", b"x")])
            .await
            .is_err()
    );
    assert!(Inbox::queue("orders").open(&connection).await.is_err());
    assert!(connection.dead_letters().list("orders", 1).await.is_err());
    // The last one out has emptied the log into the file.
    assert!(!file.path().with_file_name("queue.db-wal").exists());
    file.plain().await.close().await.unwrap();
}

#[tokio::test]
async fn full_synchronous_works_as_well() {
    let file = Place::here();
    let connection = file.broker().synchronous(Synchronous::Full).connect().await.unwrap();
    publish_numbers(&connection, "orders", 10).await;
    let mut orders = subscribe(&connection, "orders").await;
    let got = orders.take(10).await;
    assert_eq!(got[9].payload(), b"9");
    orders.ack(got).await;
}

#[tokio::test]
async fn a_deep_queue_is_claimed_from_as_fast_as_a_shallow_one() {
    const DEEP: usize = 100_000;
    let file = Place::here();
    let connection = file.connect().await;
    file.sql(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {DEEP})
         INSERT INTO ruststream_messages (queue, payload, state, due_at)
         SELECT 'orders', 'deep', i % 2, unixepoch() * 1000 + 86400000 FROM n"
    ))
    .await;
    let shallow = drain(&connection, "shallow").await;
    let deep = drain(&connection, "orders").await;
    let deepest = drain(&connection, "orders").await.min(deep);
    assert!(
        deepest < shallow * 3,
        "{deepest:?} with {DEEP} rows that are not due, {shallow:?} without"
    );
}

/// How long it takes to handle 2,000 messages.
async fn drain(connection: &ruststream_sqlx::SqlxConnection, queue: &str) -> Duration {
    publish_numbers(connection, queue, 2_000).await;
    let mut subscription = subscribe(connection, queue).await;
    let start = tokio::time::Instant::now();
    let mut done = 0;
    while done < 2_000 {
        let got = subscription.next(64).await;
        done += got.len();
        subscription.ack(got).await;
    }
    start.elapsed()
}

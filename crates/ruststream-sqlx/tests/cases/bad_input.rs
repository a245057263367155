//! What an operator or a programmer gets wrong: one clear error that names the thing and the fix, and nothing is lost.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ruststream::app::{AppError, SubscriptionState};
use ruststream::prelude::*;
use ruststream_sqlx::{Inbox, SqlxBroker};

use crate::kit::{Place, Queue, publish};
use crate::place::Place as File;
use crate::support::eventually;

#[subscriber("orders")]
async fn ignore(_order: &[u8]) {}

async fn start(broker: SqlxBroker) -> Result<(), AppError> {
    let starting = RustStream::new(AppInfo::new("case", "1.0.0"))
        .with_broker(broker, |broker| {
            broker.include(ignore);
        })
        .start();
    // What no waiting mends is told at once, without the app failing fast.
    let running = tokio::time::timeout(Duration::from_secs(5), starting)
        .await
        .expect("it waits")?;
    running.shutdown().await
}

/// The text of an error with its causes.
fn text_of(error: &AppError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

async fn refused(path: impl Into<PathBuf>, words: &[&str]) {
    let path = path.into();
    let error = start(SqlxBroker::sqlite(&path)).await.unwrap_err();
    assert!(error.is_broker());
    let text = text_of(&error);
    for word in words.iter().copied().chain([path.to_str().unwrap()]) {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_used_ends_the_start_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    refused(directory.path(), &["is a directory", "name a file in it"]).await;
    refused(
        directory.path().join("no/such/queue.db"),
        &["does not exist", "create it first"],
    )
    .await;
    let text = directory.path().join("notes.txt");
    std::fs::write(
        &text,
        "these are notes, and they are long enough to be no database at all".repeat(20),
    )
    .unwrap();
    refused(&text, &["not an SQLite database", "name another file"]).await;
    assert!(
        std::fs::read_to_string(&text).unwrap().starts_with("these are notes"),
        "it is left alone"
    );
    // Not even the superuser makes files there.
    refused("/proc/self/queue.db", &["write access"]).await;
}

#[tokio::test]
async fn a_table_of_a_newer_version_ends_the_start_with_both_versions() {
    let file = File::new().await;
    start(file.broker()).await.unwrap();
    file.sql("UPDATE ruststream_meta SET version = 99").await;
    refused(file.path(), &["99"]).await;
}

/// The same as a process: one line that says what is wrong, and an exit code that a supervisor sees.
#[tokio::test]
async fn a_process_that_cannot_start_exits_with_an_error() {
    let place = Place::new().await;
    let mut service = place.service("a").reads(Queue::new("orders"));
    service.database = std::env::temp_dir().display().to_string();
    let mut node = place.spawn(&service, &[]);

    assert_eq!(node.exit().await.code(), Some(1));
    let log = node.log();
    assert_eq!(log.matches("ERROR").count(), 1, "{log}");
    assert!(log.contains("is a directory"), "{log}");
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_before_anything_starts() {
    let file = File::new().await;
    let error = RustStream::new(AppInfo::new("case", "1.0.0"))
        .with_broker(file.broker(), |broker| {
            broker.include(ignore).workers(0);
        })
        .start()
        .await
        .unwrap_err();
    assert!(error.is_wiring());
    assert!(error.to_string().contains(".workers(0)"), "{error}");
    assert!(!file.path().exists(), "nothing was opened");

    let error = RustStream::new(AppInfo::new("case", "1.0.0"))
        .with_broker(file.broker(), |broker| {
            broker.include(ignore).source(Inbox::queue(""));
        })
        .build()
        .check()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`ignore`") && error.contains("the name of the queue is empty"),
        "{error}"
    );
}

#[derive(Debug, Clone, Default)]
struct Seen(Arc<AtomicUsize>);

#[subscriber("placeholder")]
async fn see(order: u64, context: Context<'_>, State(seen): State<Seen>) {
    assert_eq!(order, 7);
    assert!(!context.source().is_empty());
    seen.0.fetch_add(1, Ordering::SeqCst);
}

/// Names are data: whatever is in them, each queue is its own.
#[tokio::test]
async fn names_with_odd_characters_are_queues_like_others() {
    const LONG: &str = "a name of two hundred bytes that goes on and on and on and on and on and on and on and on and on and on and on \
                        and on and on and on and on and on and on and on and on and on and on and on and on--";
    let names = [
        "naïve / 注文 🦀",
        "'; DROP TABLE ruststream_messages; --",
        " ",
        "a\nb\tc",
        "%_*?[",
        "\"",
        LONG,
    ];
    assert!(LONG.len() <= 200 && LONG.len() > 180, "{}", LONG.len());
    let file = File::new().await;
    let connection = file.connect().await;
    for name in names {
        let seen = Seen::default();
        let running = RustStream::new(AppInfo::new("case", "1.0.0"))
            .state(seen.clone())
            .with_broker(file.broker(), |broker| {
                broker.include(see).source(Inbox::queue(name));
            })
            .start()
            .await
            .unwrap();
        running.publisher().publish(name.to_owned(), &7u64).await.unwrap();
        eventually(
            async || connection.queue_counts(name).await.unwrap(),
            |counts| *counts == <_>::default(),
        )
        .await;
        assert_eq!(seen.0.load(Ordering::SeqCst), 1, "{name:?}");
        assert!(running.health().subscription(name).is_some());
        running.shutdown().await.unwrap();
    }
}

/// What is above the limit is refused with its size and the limit, and what was published beside it is stored.
#[tokio::test]
async fn a_payload_above_the_limit_is_refused_and_the_others_stored() {
    let file = File::new().await;
    let running = RustStream::new(AppInfo::new("case", "1.0.0"))
        .with_broker(file.broker().max_payload(1000), |_| {})
        .start()
        .await
        .unwrap();
    let large = "x".repeat(2000);
    let error = running
        .publisher()
        .publish_many("orders", &["small", &large, "small too"])
        .await
        .unwrap_err();

    assert!(error.for_message(0).is_none() && error.for_message(2).is_none());
    let refused = error.for_message(1).unwrap();
    assert!(refused.is_too_large());
    let text = refused.to_string();
    assert!(
        ["orders", "1000", ".max_payload(..)"]
            .iter()
            .all(|word| text.contains(word)),
        "{text}"
    );
    assert_eq!(file.connect().await.queue_counts("orders").await.unwrap().ready, 2);
    running.shutdown().await.unwrap();
}

/// Gives a message up with a reason so long that it needs room of its own, or acks it.
#[subscriber("orders")]
async fn judge(order: u64) -> HandlerOutcome {
    if order == 0 {
        HandlerOutcome::dead_letter("e".repeat(60_000))
    } else {
        HandlerOutcome::ack()
    }
}

/// A disk that is full when a message is to be settled: the message stays, the health says why, and when there is room it
/// works again.
#[tokio::test]
async fn a_disk_that_is_full_at_a_settle_loses_nothing_and_is_told() {
    let file = File::new().await;
    let connection = file.connect().await;
    file.sql("CREATE TABLE ballast (bytes BLOB); INSERT INTO ballast VALUES (randomblob(500000))")
        .await;
    publish(&connection, "orders", &[0u64]).await;
    let pages = file.number("PRAGMA page_count").await;
    let running = RustStream::new(AppInfo::new("case", "1.0.0"))
        .with_broker(file.broker().pragma("max_page_count", pages.to_string()), |broker| {
            broker.include(judge).workers(2);
        })
        .start()
        .await
        .unwrap();

    let health = eventually(
        async || running.health().subscriptions.remove(0),
        |health| health.state == SubscriptionState::Degraded,
    )
    .await;
    let reason = health.reason.unwrap();
    assert!(reason.contains("full") && reason.contains("make room"), "{reason}");
    assert!(!running.health().is_ready());
    assert_eq!(health.in_hand, 1);
    assert_eq!(
        file.number("SELECT count(*) FROM ruststream_messages WHERE state = 0")
            .await,
        1
    );

    file.sql("DELETE FROM ballast").await;
    eventually(async || running.health(), ruststream::app::Health::is_ready).await;
    let letter = eventually(
        async || connection.dead_letters().list("orders", 1).await.unwrap(),
        |letters| letters.len() == 1,
    )
    .await;
    assert_eq!(letter[0].attempts, 1);
    running.publisher().publish("orders", &1u64).await.unwrap();
    eventually(
        async || running.health().subscriptions.remove(0),
        |health| health.acked == 1,
    )
    .await;
    running.shutdown().await.unwrap();
}

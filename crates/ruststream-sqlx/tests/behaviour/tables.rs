//! Tables of one's own as queues: rows as structs, names that lead to tables, and what is said of a table that will not do.

use std::time::Duration;

use ruststream::message::{OptionSet, Outgoing};
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection, DeadLetter, DeadReason, Delivery, Publish, Settle, Source, Verdict};
use ruststream_sqlx::{Inbox, InboxOptions, Stored};
use tokio::sync::mpsc;

use crate::place::{Database, Place};
use crate::support::{eventually, open, payloads};

#[derive(Debug, Clone, PartialEq, Inbox)]
#[inbox(
    table = "jobs",
    run_at = "due",
    lease = "held_until",
    token = "holder",
    dead_at = "dead",
    dead_reason = "why"
)]
struct Job {
    #[inbox(id, generated)]
    id: i64,
    #[inbox(group)]
    kind: String,
    #[inbox(payload)]
    body: Option<String>,
    #[inbox(key)]
    customer: Option<String>,
    #[inbox(priority, column = "rank_of_it")]
    rank: i32,
    #[inbox(attempt)]
    attempts: i32,
}

impl Job {
    fn new(kind: &str, body: &str) -> Self {
        Self {
            id: 0,
            kind: kind.to_owned(),
            body: Some(body.to_owned()),
            customer: None,
            rank: 0,
            attempts: 0,
        }
    }
}

/// One whose key is text.
#[derive(Debug, Clone, PartialEq, Inbox)]
#[inbox(
    table = "notes",
    run_at = "due",
    lease = "held_until",
    token = "holder",
    processed_at = "done"
)]
struct Note {
    #[inbox(id)]
    name: String,
    #[inbox(attempt)]
    attempts: i32,
}

async fn place() -> Place {
    let place = Place::new().await;
    for table in Place::TABLES {
        place.sql(table).await;
    }
    place
}

fn jobs(kind: &str) -> Inbox {
    Inbox::table::<Job, Database>(kind)
}

#[subscriber("mail")]
async fn send(job: &Job, State(seen): State<mpsc::Sender<Job>>) -> Result<(), String> {
    seen.send(job.clone()).await.map_err(|error| error.to_string())?;
    if job.attempts < 2 {
        Err("not yet".to_owned())
    } else {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_takes_the_row_as_its_struct() {
    let place = place().await;
    let connection = place.connect().await;
    let repository = connection.repository::<Job, Database>().await.unwrap();
    assert_eq!(
        repository.insert(&Job::new("mail", "hello")).await.unwrap(),
        Stored::New
    );
    assert_eq!(
        repository.insert(&Job::new("print", "not for it")).await.unwrap(),
        Stored::New
    );
    let (sender, mut seen) = mpsc::channel(16);
    let app = RustStream::new(AppInfo::new("jobs", "1.0.0"))
        .state(sender)
        .with_broker(place.broker().table::<Job>("mail"), |broker| {
            broker.include(send).retry(Retry::fixed(Duration::from_millis(5)));
        })
        .start()
        .await
        .unwrap();
    let first = seen.recv().await.unwrap();
    assert_eq!((first.body.as_deref(), first.attempts), (Some("hello"), 1));
    assert_eq!(seen.recv().await.unwrap().attempts, 2);
    eventually(
        async || place.number("SELECT count(*) FROM jobs").await,
        |left| *left == 1,
    )
    .await;
    app.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_name_leads_to_a_table_for_who_publishes_and_who_reads() {
    let place = place().await;
    let broker = place.broker().table::<Job>("mail").table::<Job>("print");
    let connection = broker.connect().await.unwrap();
    let mut urgent = OptionSet::new();
    urgent.insert(InboxOptions::new().priority(5));
    connection
        .publisher()
        .publish(&[
            Outgoing::new("mail", b"one"),
            Outgoing::new("elsewhere", b"in the table of the crate"),
            Outgoing::new("print", b"two"),
            Outgoing::new("mail", b"three").with_options(&urgent),
            Outgoing::new("mail", b"later").with_delay(Duration::from_millis(300)),
        ])
        .await
        .unwrap();
    assert_eq!(connection.queue_counts("elsewhere").await.unwrap().ready, 1);
    let mut mail = open(&connection, &broker.source("mail").priority()).await;
    let all = mail.take(2).await;
    assert_eq!(payloads(&all), ["three", "one"]);
    assert_eq!(mail.ack(all).await.stale, 0);
    let later = mail.next(10).await;
    assert_eq!(payloads(&later), ["later"]);
    let mut print = open(&connection, &broker.source("print")).await;
    assert_eq!(payloads(&print.next(10).await), ["two"]);
}

#[tokio::test]
async fn rows_are_leased_retried_released_and_given_up() {
    let place = place().await;
    let (one, other) = (place.connect().await, place.connect().await);
    let repository = one.repository::<Job, Database>().await.unwrap();
    let rows: Vec<Job> = ["a", "b", "c"].map(|body| Job::new("mail", body)).to_vec();
    repository.insert_all(&rows).await.unwrap();
    let lease = Duration::from_millis(400);
    let mut here = open(&one, &jobs("mail").lease(lease)).await;
    let mut there = open(&other, &jobs("mail")).await;
    let mut all = here.take(3).await;
    assert!(there.finds_nothing().await, "all are leased");
    let dead = DeadLetter {
        reason: DeadReason::Rejected,
        error: "it's no use".to_owned(),
        attempts: 1,
        source: "mail".to_owned(),
        at: std::time::SystemTime::now(),
    };
    let (third, second) = (all.remove(2), all.remove(1));
    here.end(vec![second], Verdict::DeadLetter(Box::new(dead))).await;
    assert_eq!(
        place
            .number("SELECT count(*) FROM jobs WHERE dead IS NOT NULL AND why LIKE '%it''s no use%'")
            .await,
        1
    );
    here.end(vec![third], Verdict::Release).await;
    let again = there.next(10).await;
    assert_eq!((payloads(&again), again[0].attempt()), (vec!["c".to_owned()], 1));
    let after = Duration::from_millis(100);
    there.end(again, Verdict::Retry { after }).await;
    let again = there.next(1).await;
    assert_eq!((payloads(&again), again[0].attempt()), (vec!["c".to_owned()], 2));
    // The first is held as long as it is renewed.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let mut lost = Vec::new();
        here.settle.renew(&mut lost).await.unwrap();
        assert!(lost.is_empty());
    }
    assert!(there.finds_nothing().await);
    tokio::time::sleep(lease).await;
    let taken = there.next_one().await;
    assert_eq!((taken.payload(), taken.attempt()), (&b"a"[..], 2));
    let mut lost = Vec::new();
    here.settle.renew(&mut lost).await.unwrap();
    assert_eq!(lost.len(), 1);
    assert_eq!(here.ack(all).await.stale, 1);
}

#[tokio::test]
async fn keys_of_rows_keep_their_order_across_processes() {
    let place = place().await;
    let (one, other) = (place.connect().await, place.connect().await);
    let repository = one.repository::<Job, Database>().await.unwrap();
    for body in ["a0", "a1"] {
        let job = Job {
            customer: Some("a".to_owned()),
            ..Job::new("mail", body)
        };
        repository.insert(&job).await.unwrap();
    }
    let mut here = open(&one, &jobs("mail").fifo()).await;
    let mut there = open(&other, &jobs("mail").fifo()).await;
    let first = here.next(10).await;
    assert_eq!(payloads(&first), ["a0"]);
    assert!(there.finds_nothing().await);
    here.ack(first).await;
    assert_eq!(payloads(&there.next(10).await), ["a1"]);
}

#[tokio::test]
async fn a_key_may_be_a_text_and_what_is_done_may_stay() {
    let place = place().await;
    let connection = place.connect().await;
    let repository = connection.repository::<Note, Database>().await.unwrap();
    let note = |name: &str| Note {
        name: name.to_owned(),
        attempts: 0,
    };
    let name = "it's a \\ 'name'; --";
    assert_eq!(repository.insert(&note(name)).await.unwrap(), Stored::New);
    assert_eq!(repository.insert(&note(name)).await.unwrap(), Stored::Duplicate);
    let mut notes = open(&connection, &Inbox::table::<Note, Database>("notes")).await;
    let all = notes.next(10).await;
    assert_eq!(all.len(), 1);
    assert_eq!(notes.ack(all).await.stale, 0);
    assert_eq!(
        place.number("SELECT count(*) FROM notes WHERE done IS NOT NULL").await,
        1
    );
    assert!(notes.finds_nothing().await);
    // The next subscription finds that it was kept for long enough.
    let brief = Inbox::table::<Note, Database>("notes").keep(Duration::from_millis(1));
    let mut next = open(&connection, &brief).await;
    assert!(next.finds_nothing().await);
    eventually(
        async || place.number("SELECT count(*) FROM notes").await,
        |left| *left == 0,
    )
    .await;
}

#[tokio::test]
async fn a_table_that_will_not_do_ends_the_start_by_its_column() {
    let place = place().await;
    let connection = place.connect().await;
    let refused = async |word: &str| {
        let error = jobs("mail").open(&connection).await.map(drop).unwrap_err();
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    place.sql(Place::WRONG_COLUMN).await;
    refused("held_until").await;
    place.sql("ALTER TABLE jobs DROP COLUMN customer").await;
    refused("no column \"customer\"").await;
    place.sql("DROP TABLE jobs").await;
    refused("there is no table").await;
}

#[tokio::test]
async fn what_a_table_of_ones_own_cannot_do_is_told() {
    let error = jobs("mail").group("billing").check().unwrap_err();
    assert!(error.to_string().contains("leave out `.group(..)`"), "{error}");
}

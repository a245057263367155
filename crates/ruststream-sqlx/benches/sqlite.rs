//! Loops over an `SQLite` file, taking turns: what the crate's two halves cost beside the same work written by hand.
//!
//! `cargo bench -p ruststream-sqlx --bench sqlite`, with `-- --smoke` for a tiny run, and `-- NAME` for the loops whose name
//! contains it. A round makes a fresh file for each loop, fills it where the loop consumes, and times the loop alone.

#![allow(clippy::print_stdout, reason = "the table is what the program is for")]

use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use ruststream::message::Outgoing;
use ruststream::prelude::{AppInfo, RustStream, State, subscriber};
use ruststream::transport::{Broker, Connection as _, Delivery, Fetch, Publish, Settle, Source, Verdict};
use ruststream_sqlx::{Inbox, SqlxBroker};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor, Row};
use tokio::sync::watch;
use tokio::time::Instant;

type Failed = Box<dyn Error + Send + Sync>;
type Timed = Pin<Box<dyn Future<Output = Result<Duration, Failed>> + Send>>;

const PAYLOAD: [u8; 512] = [b'x'; 512];
const CHUNK: usize = 64;
const TASKS: usize = 8;

/// One thing to time: so many messages, in a file of its own.
struct Loop {
    name: &'static str,
    /// What part of the round's messages it takes: the slow ones take less.
    share: usize,
    run: fn(PathBuf, usize) -> Timed,
}

const CONSUME: &[Loop] = &[
    Loop {
        name: "bare",
        share: 8,
        run: |path, count| Box::pin(by_hand(path, count, 1)),
    },
    Loop {
        name: "tuned",
        share: 1,
        run: |path, count| Box::pin(by_hand(path, count, CHUNK)),
    },
    Loop {
        name: "crate",
        share: 1,
        run: |path, count| Box::pin(halves(path, count, false, 0)),
    },
    Loop {
        name: "crate-in-turn",
        share: 1,
        run: |path, count| Box::pin(halves(path, count, true, 0)),
    },
    Loop {
        name: "service-w1",
        share: 1,
        run: |path, count| Box::pin(service(path, count, 1)),
    },
    Loop {
        name: "service-w4",
        share: 1,
        run: |path, count| Box::pin(service(path, count, 4)),
    },
    Loop {
        name: "service-w8",
        share: 1,
        run: |path, count| Box::pin(service(path, count, 8)),
    },
];

/// Asked for by name: filling takes longer than the loop.
const DEEP: &[Loop] = &[
    Loop {
        name: "shallow",
        share: 1,
        run: |path, count| Box::pin(halves(path, count, false, 0)),
    },
    Loop {
        name: "deep",
        share: 1,
        run: |path, count| Box::pin(halves(path, count, false, 1_000_000)),
    },
];

const PUBLISH: &[Loop] = &[
    Loop {
        name: "insert-each",
        share: 4,
        run: |path, count| Box::pin(insert_each(path, count)),
    },
    Loop {
        name: "publish-1",
        share: 4,
        run: |path, count| Box::pin(publish(path, count, 1)),
    },
    Loop {
        name: "publish-8",
        share: 1,
        run: |path, count| Box::pin(publish(path, count, TASKS)),
    },
];

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let smoke = arguments.iter().any(|argument| argument == "--smoke");
    let wanted: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let (rounds, count) = if smoke { (1, 1_024) } else { (9, 65_536) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for group in [CONSUME, PUBLISH, DEEP] {
        let loops: Vec<&Loop> = group
            .iter()
            .filter(|one| {
                wanted.is_empty() && one.name != "deep" && one.name != "shallow"
                    || wanted.iter().any(|name| one.name.contains(name.as_str()))
            })
            .collect();
        if !loops.is_empty() {
            runtime.block_on(take_turns(&loops, rounds, count))?;
        }
    }
    Ok(())
}

async fn take_turns(loops: &[&Loop], rounds: usize, count: usize) -> Result<(), Failed> {
    let mut rates = vec![Vec::new(); loops.len()];
    for _ in 0..rounds {
        for (one, rates) in loops.iter().zip(&mut rates) {
            let directory = tempfile::tempdir()?;
            let count = count / one.share;
            // As in a service: on a worker of the runtime, not on the thread that started it.
            let took = tokio::spawn((one.run)(directory.path().join("bench.db"), count)).await??;
            rates.push(count as f64 / took.as_secs_f64());
        }
    }
    println!(
        "{:<16}{:>12}{:>12}{:>12}{:>12}",
        "messages/s", "best", "median", "slowest", "x first"
    );
    let mut first = None;
    for (one, rates) in loops.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        let base = *first.get_or_insert(median);
        println!(
            "{:<16}{:>12.0}{:>12.0}{:>12.0}{:>12.2}",
            one.name,
            rates[rates.len() - 1],
            median,
            rates[0],
            median / base
        );
    }
    println!();
    Ok(())
}

/// The table that one would write by hand.
const TABLE: &str = "
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, queue TEXT NOT NULL, payload BLOB NOT NULL, headers BLOB,
        attempt INTEGER NOT NULL DEFAULT 0, run_at INTEGER NOT NULL, token INTEGER
    );
    CREATE INDEX jobs_due ON jobs (queue, run_at);";

async fn hand_connection(path: &Path) -> Result<SqliteConnection, Failed> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .disable_statement_logging();
    let mut connection = options.connect().await?;
    connection.execute(TABLE).await?;
    Ok(connection)
}

/// Claims `chunk` rows under a lease, deletes them, and again.
async fn by_hand(path: PathBuf, count: usize, chunk: usize) -> Result<Duration, Failed> {
    let mut connection = hand_connection(&path).await?;
    connection
        .execute(
            sqlx::query(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
                 INSERT INTO jobs (queue, payload, run_at) SELECT 'orders', ?, ? FROM n",
            )
            .bind(i64::try_from(count)?)
            .bind(&PAYLOAD[..])
            .bind(now()),
        )
        .await?;
    checkpoint(&mut connection).await?;
    let start = Instant::now();
    let mut done = 0;
    let mut token = 0_i64;
    while done < count {
        let now = now();
        token += 1;
        let claim = sqlx::query(
            "UPDATE jobs SET run_at = ?, token = ?, attempt = attempt + 1 WHERE id IN
               (SELECT id FROM jobs WHERE queue = ? AND run_at <= ? ORDER BY run_at, id LIMIT ?)
             RETURNING id, attempt, payload, headers",
        )
        .bind(now + 30_000)
        .bind(token)
        .bind("orders")
        .bind(now)
        .bind(i64::try_from(chunk)?);
        let mut ids = Vec::with_capacity(chunk);
        let mut rows = connection.fetch(claim);
        while let Some(row) = rows.try_next().await? {
            let (id, _attempt): (i64, i64) = (row.get(0), row.get(1));
            let payload: Vec<u8> = row.get(2);
            let _headers: Option<Vec<u8>> = row.get(3);
            handle(&payload);
            ids.push(id);
        }
        drop(rows);
        done += ids.len();
        let delete = if let [id] = ids[..] {
            sqlx::query("DELETE FROM jobs WHERE id = ? AND token = ?").bind(id)
        } else {
            let list: Vec<String> = ids.iter().map(i64::to_string).collect();
            sqlx::query("DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND token = ?")
                .bind(format!("[{}]", list.join(",")))
        };
        connection.execute(delete.bind(token)).await?;
    }
    let took = start.elapsed();
    connection.close().await?;
    Ok(took)
}

/// Drives the two halves: receipts travel while the next deliveries are fetched, or `in_turn`. The queue holds `deep` rows that
/// are due tomorrow, and a twentieth of that in dead letters.
async fn halves(path: PathBuf, count: usize, in_turn: bool, deep: usize) -> Result<Duration, Failed> {
    let connection = SqlxBroker::sqlite(&path).connect().await?;
    let mut plain = SqliteConnectOptions::new().filename(&path).connect().await?;
    for (rows, state) in [(deep, 0), (deep / 20, 1)] {
        let insert = sqlx::query(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
             INSERT INTO ruststream_messages (queue, payload, state, due_at) SELECT 'orders', ?, ?, ? FROM n",
        );
        if rows > 0 {
            let rows = i64::try_from(rows)?;
            plain
                .execute(
                    insert
                        .bind(rows)
                        .bind(&PAYLOAD[..])
                        .bind(state)
                        .bind(now() + 86_400_000),
                )
                .await?;
        }
    }
    fill(&connection.publisher(), count).await?;
    checkpoint(&mut plain).await?;
    plain.close().await?;
    let (mut fetch, mut settle) = Inbox::queue("orders").open(&connection).await?;
    let start = Instant::now();
    let mut done = 0;
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut finished = Vec::with_capacity(CHUNK);
    fetch.fetch(CHUNK, &mut chunk).await?;
    while done < count {
        done += chunk.len();
        for delivery in chunk.drain(..) {
            handle(delivery.payload());
            finished.push((delivery.into_receipt(), Verdict::Ack));
        }
        if done == count || in_turn {
            settle.settle(&mut finished).await?;
        }
        if done < count {
            let (settled, fetched) = tokio::join!(settle.settle(&mut finished), fetch.fetch(CHUNK, &mut chunk));
            settled?;
            fetched?;
        }
    }
    let took = start.elapsed();
    if std::env::var_os("BENCH_STATISTICS").is_some() {
        println!("{count} messages, {:?}", connection.statistics());
    }
    connection.close().await;
    Ok(took)
}

/// What a user writes: a handler and an app. Timed from the start of the app to the last receipt settled.
async fn service(path: PathBuf, count: usize, workers: usize) -> Result<Duration, Failed> {
    let broker = SqlxBroker::sqlite(&path);
    let connection = broker.connect().await?;
    fill(&connection.publisher(), count).await?;
    checkpoint(&mut SqliteConnectOptions::new().filename(&path).connect().await?).await?;
    connection.close().await;
    let (left, mut done) = watch::channel(false);
    let left = Arc::new((AtomicUsize::new(count), left));
    let start = Instant::now();
    let running = RustStream::new(AppInfo::new("bench", "0"))
        .state(left)
        .with_broker(broker, |broker| {
            broker.include(count_down).workers(workers);
        })
        .start()
        .await?;
    done.wait_for(|done| *done).await?;
    running.shutdown().await?;
    Ok(start.elapsed())
}

type Left = Arc<(AtomicUsize, watch::Sender<bool>)>;

#[subscriber("orders")]
async fn count_down(payload: &[u8], State(left): State<Left>) {
    handle(payload);
    if left.0.fetch_sub(1, Ordering::Relaxed) == 1 {
        left.1.send_replace(true);
    }
}

async fn fill(publisher: &impl Publish, count: usize) -> Result<(), Failed> {
    let chunk = vec![Outgoing::new("orders", &PAYLOAD); count.min(1_024)];
    let mut left = count;
    while left > 0 {
        let now = left.min(chunk.len());
        publisher.publish(&chunk[..now]).await?;
        left -= now;
    }
    Ok(())
}

/// One insert each, from one task.
async fn insert_each(path: PathBuf, count: usize) -> Result<Duration, Failed> {
    let mut connection = hand_connection(&path).await?;
    let start = Instant::now();
    for _ in 0..count {
        let insert = sqlx::query("INSERT INTO jobs (queue, payload, run_at) VALUES (?, ?, ?)")
            .bind("orders")
            .bind(&PAYLOAD[..])
            .bind(now());
        connection.execute(insert).await?;
    }
    let took = start.elapsed();
    connection.close().await?;
    Ok(took)
}

/// One publish each, from so many tasks.
async fn publish(path: PathBuf, count: usize, tasks: usize) -> Result<Duration, Failed> {
    let connection = SqlxBroker::sqlite(&path).connect().await?;
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let publisher = connection.publisher();
        running.spawn(async move {
            for _ in 0..count / tasks {
                publisher.publish(&[Outgoing::new("orders", &PAYLOAD)]).await?;
            }
            Ok::<(), Failed>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let took = start.elapsed();
    if std::env::var_os("BENCH_STATISTICS").is_some() {
        println!("{count} messages, {:?}", connection.statistics());
    }
    connection.close().await;
    Ok(took)
}

/// What a handler does here: it reads the payload.
fn handle(payload: &[u8]) {
    std::hint::black_box(payload.iter().fold(0_u8, |sum, byte| sum ^ byte));
}

/// Empties the log, so that no loop pays for what filled its file.
async fn checkpoint(connection: &mut SqliteConnection) -> Result<(), Failed> {
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await?;
    Ok(())
}

fn now() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

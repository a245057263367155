//! What one writes by hand: a table, a claim under a lease, a delete.

use futures_util::TryStreamExt as _;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Executor as _, Row as _};
use tokio::task::JoinSet;

use super::{File, QUEUE, REPLIES, Sqlite, now};
use crate::scenarios::work;
use crate::suite::{Failed, Tally, Trial};

const TABLE: &str = "
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, queue TEXT NOT NULL, payload BLOB NOT NULL, headers BLOB,
        attempt INTEGER NOT NULL DEFAULT 0, run_at INTEGER NOT NULL, token INTEGER
    );
    CREATE INDEX jobs_due ON jobs (queue, run_at);";

const FILL: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
    INSERT INTO jobs (queue, payload, run_at) SELECT ?, ?, ? FROM n";

const CLAIM: &str = "
    UPDATE jobs SET run_at = ?, token = ?, attempt = attempt + 1 WHERE id IN
      (SELECT id FROM jobs WHERE queue = ? AND run_at <= ? ORDER BY run_at, id LIMIT ?)
    RETURNING id, attempt, payload, headers";

const INSERT: &str = "INSERT INTO jobs (queue, payload, run_at) VALUES (?, ?, ?)";

/// How long a claimed row is leased, in milliseconds.
const LEASE: i64 = 30_000;

/// Whether each message is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replies {
    None,
    Inserted,
}

/// So many tasks claim `chunk` rows each, handle and delete them, until none is left.
pub(super) async fn drain(trial: Trial<Sqlite>, tasks: usize, chunk: usize) -> Result<(), Failed> {
    run(trial, tasks, chunk, Replies::None).await
}

/// As [`drain`] by one task, with a reply to each message inserted before its row is deleted.
pub(super) async fn reply(trial: Trial<Sqlite>, chunk: usize) -> Result<(), Failed> {
    run(trial, 1, chunk, Replies::Inserted).await
}

async fn run(trial: Trial<Sqlite>, tasks: usize, chunk: usize, replies: Replies) -> Result<(), Failed> {
    let file = trial.transport().file()?;
    let mut counting = table(&file).await?;
    let messages = sqlx::query(FILL)
        .bind(i64::try_from(trial.messages())?)
        .bind(QUEUE)
        .bind(work::body())
        .bind(now());
    counting.execute(messages).await?;
    file.checkpoint().await?;
    let mut connections = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        connections.push(file.connect().await?);
    }
    trial
        .timed(async {
            let mut running = JoinSet::new();
            for (first_token, connection) in (1..).zip(connections) {
                running.spawn(claimer(connection, first_token, tasks, chunk, replies, trial.tally()));
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await?;
    trial.expect("messages left", stored(&mut counting, QUEUE).await?, 0)?;
    let wanted = if replies == Replies::Inserted {
        trial.messages()
    } else {
        0
    };
    trial.expect("replies", stored(&mut counting, REPLIES).await?, wanted)
}

async fn claimer(
    mut connection: SqliteConnection,
    mut token: i64,
    tasks: usize,
    chunk: usize,
    replies: Replies,
    tally: Tally,
) -> Result<(), Failed> {
    let mut receipts = Vec::with_capacity(chunk);
    let mut ids = Vec::with_capacity(chunk);
    loop {
        // The tokens of the tasks never meet.
        token += i64::try_from(tasks)?;
        let now = now();
        let claim = sqlx::query(CLAIM)
            .bind(now + LEASE)
            .bind(token)
            .bind(QUEUE)
            .bind(now)
            .bind(i64::try_from(chunk)?);
        ids.clear();
        receipts.clear();
        let mut rows = connection.fetch(claim);
        while let Some(row) = rows.try_next().await? {
            let (id, _attempt): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let payload: &[u8] = row.try_get(2)?;
            let _headers: Option<&[u8]> = row.try_get(3)?;
            receipts.push(work::handle(work::decoded(payload)?));
            tally.one();
            ids.push(id);
        }
        drop(rows);
        if ids.is_empty() {
            return Ok(connection.close().await?);
        }
        if replies == Replies::Inserted && chunk > 1 {
            // One transaction for what belongs together.
            let mut transaction = connection.begin().await?;
            insert(&mut transaction, REPLIES, receipts.iter().map(work::encoded)).await?;
            delete(&mut transaction, &ids, token).await?;
            transaction.commit().await?;
        } else {
            if replies == Replies::Inserted {
                insert(&mut connection, REPLIES, receipts.iter().map(work::encoded)).await?;
            }
            delete(&mut connection, &ids, token).await?;
        }
    }
}

async fn delete(connection: &mut SqliteConnection, ids: &[i64], token: i64) -> Result<(), Failed> {
    let delete = if let [id] = ids {
        sqlx::query("DELETE FROM jobs WHERE id = ? AND token = ?").bind(*id)
    } else {
        let list: Vec<String> = ids.iter().map(i64::to_string).collect();
        sqlx::query("DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND token = ?")
            .bind(format!("[{}]", list.join(",")))
    };
    connection.execute(delete.bind(token)).await?;
    Ok(())
}

/// Inserts messages by one statement.
async fn insert(
    connection: &mut SqliteConnection,
    queue: &'static str,
    messages: impl ExactSizeIterator<Item = Vec<u8>>,
) -> Result<(), Failed> {
    let due = now();
    let insert = if messages.len() == 1 {
        sqlx::query(INSERT)
    } else {
        let more = ", (?, ?, ?)".repeat(messages.len() - 1);
        sqlx::query(sqlx::AssertSqlSafe(format!("{INSERT}{more}")))
    };
    let insert = messages.fold(insert, |insert, message| insert.bind(queue).bind(message).bind(due));
    connection.execute(insert).await?;
    Ok(())
}

/// So many tasks publish their part of the messages, `chunk` by one insert.
pub(super) async fn publish(trial: Trial<Sqlite>, tasks: usize, chunk: usize) -> Result<(), Failed> {
    let file = trial.transport().file()?;
    let mut counting = table(&file).await?;
    let mut connections = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        connections.push(file.connect().await?);
    }
    let inserts = trial.messages() / (tasks * chunk) as u64;
    trial
        .timed(async {
            let mut running = JoinSet::new();
            for mut connection in connections {
                let tally = trial.tally();
                running.spawn(async move {
                    let order = work::noted_order();
                    for _ in 0..inserts {
                        let messages = (0..chunk).map(|_| work::encoded(&order));
                        insert(&mut connection, QUEUE, messages).await?;
                        tally.many(chunk as u64);
                    }
                    Ok::<(), Failed>(connection.close().await?)
                });
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await?;
    trial.expect("messages stored", stored(&mut counting, QUEUE).await?, trial.messages())
}

async fn table(file: &File) -> Result<SqliteConnection, Failed> {
    let mut connection = file.connect().await?;
    connection.execute(TABLE).await?;
    Ok(connection)
}

async fn stored(connection: &mut SqliteConnection, queue: &str) -> Result<u64, Failed> {
    let query = sqlx::query_scalar("SELECT count(*) FROM jobs WHERE queue = ?");
    let count: i64 = query.bind(queue).fetch_one(connection).await?;
    Ok(u64::try_from(count)?)
}

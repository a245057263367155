//! The outbox in a file of `SQLite`.

use std::sync::{Arc, LazyLock};

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Executor, Pool, Row, Sqlite};

use super::body::{mark, reads_records, same_for_all, tracks_by_values};
use super::sealed::{Operations, Writes};
use super::statements::{self, Dialect};
use super::{Done, Listening, OutboxConnection, OutboxDatabase};
use crate::outbox::records::{
    Claim, Finished, GivenUp, NewRecord, NewTracked, Old, Record, TrackedClaim, TrackedDue, TrackedEnd,
    TrackedLeftover, TrackedState, Waiting, Which,
};
use crate::outbox::relay::Status;

const DIALECT: Dialect = Dialect::Sqlite;

const PART: &str = "ruststream_outbox";

const META: &str =
    "CREATE TABLE IF NOT EXISTS ruststream_meta (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT";

/// The statements at position `n` lead from version `n` to version `n + 1`.
const MIGRATIONS: [&str; 1] = ["CREATE TABLE ruststream_outbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    due_at      INTEGER NOT NULL DEFAULT 0,
    held_until  INTEGER,
    token       INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    written_at  INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    ended_at    INTEGER,
    state       INTEGER NOT NULL DEFAULT 0,
    error       TEXT,
    destination TEXT    NOT NULL,
    message_key BLOB,
    headers     BLOB    NOT NULL,
    payload     BLOB    NOT NULL
) STRICT;
CREATE INDEX ruststream_outbox_due ON ruststream_outbox (due_at, id) WHERE state = 0;
CREATE INDEX ruststream_outbox_held ON ruststream_outbox (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX ruststream_outbox_ended ON ruststream_outbox (state, ended_at) WHERE state <> 0;
CREATE TABLE ruststream_tracked (
    id          TEXT PRIMARY KEY,
    resend_at   INTEGER NOT NULL,
    held_until  INTEGER NOT NULL DEFAULT 0,
    token       INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    written_at  INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    ended_at    INTEGER,
    state       INTEGER NOT NULL DEFAULT 0,
    consumer    TEXT    NOT NULL DEFAULT '',
    destination TEXT    NOT NULL,
    message_key BLOB,
    headers     BLOB    NOT NULL,
    payload     BLOB    NOT NULL
) STRICT;
CREATE INDEX ruststream_tracked_resend ON ruststream_tracked (resend_at) WHERE state = 0;
CREATE INDEX ruststream_tracked_ended ON ruststream_tracked (ended_at) WHERE state >= 2;
CREATE TABLE ruststream_receipts (
    consumer    TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    received_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX ruststream_receipts_received ON ruststream_receipts (received_at)"];

const KNOWN: i64 = MIGRATIONS.len().cast_signed() as i64;

impl OutboxDatabase for Sqlite {}

impl OutboxConnection for SqliteConnection {}

impl Writes for SqliteConnection {
    async fn receipt(&mut self, consumer: &str, message: &str) -> Done<bool> {
        Sqlite::receipt(self, consumer, message).await
    }
}

reads_records!(SqliteRow);

async fn execute_ids(connection: &mut SqliteConnection, what: &str, ids: &[i64], token: i64) -> Done<u64> {
    let text = DIALECT.text(&format!(
        "{what} WHERE id IN (SELECT value FROM json_each(?)) AND token = ?"
    ));
    let query = sqlx::query(AssertSqlSafe(text)).bind(numbers(ids)).bind(token);
    Ok(query.execute(connection).await?.rows_affected())
}

fn numbers(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    format!("[{}]", ids.join(","))
}

/// Ids of tracked messages are hexadecimal digits: they need no escapes.
fn texts(ids: &[String]) -> String {
    format!("[\"{}\"]", ids.join("\",\""))
}

impl Operations for Sqlite {
    const ONE_INSERT: bool = false;
    const ONE_WRITER: bool = true;

    fn options(pool: &Pool<Self>) -> SqliteConnectOptions {
        (*pool.connect_options()).clone()
    }

    async fn settle_in(_: &mut SqliteConnection) -> Done<()> {
        Ok(())
    }

    fn ddl() -> String {
        let migrations = MIGRATIONS.join(";\n");
        format!("{META};\n{migrations};\nINSERT INTO ruststream_meta (name, version) VALUES ('{PART}', {KNOWN});\n")
    }

    async fn prepare(connection: &mut SqliteConnection, migrate: bool) -> Done<()> {
        let version = version(connection).await?;
        if version == KNOWN {
            return Ok(());
        }
        super::known(version, KNOWN, migrate)?;
        Self::begin(connection).await?;
        // Of ten processes that start at once, the first does the work and the others find it done.
        for (from, statements) in (0..KNOWN)
            .zip(MIGRATIONS)
            .skip(self::version(connection).await? as usize)
        {
            connection.execute(META).await?;
            sqlx::raw_sql(statements).execute(&mut *connection).await?;
            let record =
                sqlx::query("INSERT INTO ruststream_meta VALUES (?1, ?2) ON CONFLICT DO UPDATE SET version = ?2");
            record.bind(PART).bind(from + 1).execute(&mut *connection).await?;
        }
        Self::commit(connection).await
    }

    async fn turn(
        connection: &mut SqliteConnection,
        finished: Option<&Finished>,
        claim: Option<Claim>,
    ) -> Done<Vec<Record>> {
        static PROMOTE: LazyLock<String> = LazyLock::new(|| DIALECT.text(statements::PROMOTE));
        // An idle relay asks without the lock of writers.
        if finished.is_none()
            && let Some(claim) = claim
            && !anything(connection, claim).await?
        {
            return Ok(Vec::new());
        }
        Self::begin(connection).await?;
        if let Some(finished) = finished {
            mark!(DIALECT, connection, finished, execute_ids);
        }
        let mut records = Vec::new();
        if let Some(claim) = claim {
            connection.execute(PROMOTE.as_str()).await?;
            let text = format!(
                "UPDATE ruststream_outbox SET token = ?, held_until = {now} + ?, attempts = attempts + (token <> 0) \
                 WHERE id IN (SELECT id FROM ruststream_outbox WHERE {claimable} ORDER BY id LIMIT ?) RETURNING {columns}",
                now = DIALECT.now(),
                claimable = DIALECT.claimable(claim.parked_stop),
                columns = statements::RECORD,
            );
            let query = sqlx::query(AssertSqlSafe(text))
                .bind(claim.token)
                .bind(claim.lease)
                .bind(claim.limit);
            let rows = query.fetch_all(&mut *connection).await?;
            records = rows.iter().map(record).collect::<Done<Vec<_>>>()?;
            records.sort_unstable_by_key(|record| record.id);
        }
        Self::commit(connection).await?;
        Ok(records)
    }

    async fn replay(connection: &mut SqliteConnection, which: &Which, keep_attempts: bool) -> Done<u64> {
        let attempts = statements::replayed_attempts(keep_attempts);
        which_rows(
            connection,
            &format!("UPDATE ruststream_outbox SET {}, {attempts}", statements::REPLAYED),
            which,
        )
        .await
    }

    async fn purge(connection: &mut SqliteConnection, which: &Which) -> Done<u64> {
        which_rows(connection, "DELETE FROM ruststream_outbox", which).await
    }

    async fn prune(connection: &mut SqliteConnection, old: Old, age: i64, limit: i64) -> Done<u64> {
        let (table, key, condition) = statements::old(old);
        let text =
            format!("DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {condition} LIMIT ?)");
        let query = sqlx::query(AssertSqlSafe(DIALECT.text(&text))).bind(age).bind(limit);
        Ok(query.execute(connection).await?.rows_affected())
    }

    async fn receipt(connection: &mut SqliteConnection, consumer: &str, message: &str) -> Done<bool> {
        let text = "INSERT INTO ruststream_receipts (consumer, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING";
        let stored = sqlx::query(text)
            .bind(consumer)
            .bind(message)
            .execute(connection)
            .await?;
        Ok(stored.rows_affected() == 1)
    }

    async fn tracked_claim(
        connection: &mut SqliteConnection,
        claim: &TrackedClaim,
    ) -> Done<Vec<(String, TrackedState)>> {
        static CLAIM: LazyLock<String> = LazyLock::new(|| {
            DIALECT.text(
                "UPDATE ruststream_tracked SET token = ?, held_until = {now} + ?, consumer = ? \
                 WHERE id IN (SELECT value FROM json_each(?)) AND state <> 2 AND held_until <= {now} \
                 AND consumer IN ('', ?) RETURNING id",
            )
        });
        let query = sqlx::query(CLAIM.as_str())
            .bind(claim.token)
            .bind(claim.lease)
            .bind(&*claim.consumer);
        let query = query.bind(texts(&claim.ids)).bind(&*claim.consumer);
        let rows = query.fetch_all(&mut *connection).await?;
        let mut states = Vec::with_capacity(claim.ids.len());
        for row in &rows {
            states.push((row.try_get_unchecked(0)?, TrackedState::Granted));
        }
        if states.len() < claim.ids.len() {
            let text = "SELECT id, CASE WHEN consumer <> ?2 THEN 2 WHEN state = 2 THEN 1 ELSE 0 END \
                        FROM ruststream_tracked WHERE id IN (SELECT value FROM json_each(?1))";
            let query = sqlx::query(text).bind(texts(&claim.ids)).bind(&*claim.consumer);
            for row in query.fetch_all(&mut *connection).await? {
                super::note(&mut states, row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
            }
        }
        Ok(states)
    }

    async fn tracked_end(connection: &mut SqliteConnection, held: &[(String, i64)], end: TrackedEnd) -> Done<u64> {
        static ENDS: LazyLock<[String; 4]> = LazyLock::new(|| {
            super::TRACKED_ENDS.map(|set| {
                DIALECT.text(&format!(
                    "UPDATE ruststream_tracked SET {set} WHERE (id, token) IN \
                     (SELECT value ->> 0, value ->> 1 FROM json_each(?))"
                ))
            })
        });
        let pairs: Vec<String> = held.iter().map(|(id, token)| format!("[\"{id}\",{token}]")).collect();
        let pairs = format!("[{}]", pairs.join(","));
        let text = ENDS[super::place_of(end)].as_str();
        let query = match end {
            TrackedEnd::Renewed(lease) => sqlx::query(text).bind(lease),
            _ => sqlx::query(text),
        };
        Ok(query.bind(pairs).execute(connection).await?.rows_affected())
    }

    async fn tracked_due(connection: &mut SqliteConnection, due: TrackedDue) -> Done<Vec<TrackedLeftover>> {
        let text = format!(
            "UPDATE ruststream_tracked SET {} WHERE id IN (SELECT id FROM ruststream_tracked \
             WHERE state = 0 AND resend_at <= {{now}} AND held_until <= {{now}} ORDER BY resend_at LIMIT ?) RETURNING {}, state",
            super::resend(DIALECT, due),
            statements::RECORD
        );
        let query = sqlx::query(AssertSqlSafe(DIALECT.text(&text))).bind(due.limit);
        let mut leftovers = Vec::new();
        for row in query.fetch_all(connection).await? {
            let state: i64 = row.try_get_unchecked(6)?;
            if state == 0 {
                leftovers.push(leftover(&row)?);
            } else {
                super::tell_parked(&leftover(&row)?);
            }
        }
        Ok(leftovers)
    }

    async fn tracked_undo(connection: &mut SqliteConnection, ids: &[String], resend: i64) -> Done<u64> {
        static UNDO: LazyLock<String> = LazyLock::new(|| {
            DIALECT.text(&format!(
                "{} WHERE id IN (SELECT value FROM json_each(?)) AND state = 0",
                super::TRACKED_UNDO
            ))
        });
        Ok(sqlx::query(UNDO.as_str())
            .bind(resend)
            .bind(texts(ids))
            .execute(connection)
            .await?
            .rows_affected())
    }

    async fn begin(connection: &mut SqliteConnection) -> Done<()> {
        connection.execute("BEGIN IMMEDIATE").await.map(|_| ())
    }

    async fn commit(connection: &mut SqliteConnection) -> Done<()> {
        connection.execute("COMMIT").await.map(|_| ())
    }

    fn listen(_: Pool<Self>, _: bool, _: Arc<Status>) -> Option<Listening> {
        None
    }

    same_for_all!(DIALECT);
    tracks_by_values!(DIALECT);
}

/// Whether a claim would bring anything, or a record that was delayed is due.
async fn anything(connection: &mut SqliteConnection, claim: Claim) -> Done<bool> {
    let text = format!(
        "SELECT EXISTS (SELECT 1 FROM ruststream_outbox WHERE {}) OR EXISTS (SELECT 1 FROM ruststream_outbox \
         WHERE state = 0 AND due_at > 0 AND due_at <= {})",
        DIALECT.claimable(claim.parked_stop),
        DIALECT.now()
    );
    let row = connection.fetch_one(sqlx::query(AssertSqlSafe(text))).await?;
    row.try_get_unchecked(0)
}

async fn which_rows(connection: &mut SqliteConnection, what: &str, which: &Which) -> Done<u64> {
    let done = match which {
        Which::Ids(ids) => {
            let text = format!("{what} WHERE id IN (SELECT value FROM json_each(?)) AND state = 1");
            sqlx::query(AssertSqlSafe(text))
                .bind(numbers(ids))
                .execute(connection)
                .await?
        }
        Which::Some(limit) => {
            let text = format!(
                "{what} WHERE id IN (SELECT id FROM ruststream_outbox WHERE state = 1 ORDER BY id LIMIT ?) AND state = 1"
            );
            sqlx::query(AssertSqlSafe(text))
                .bind(*limit)
                .execute(connection)
                .await?
        }
    };
    Ok(done.rows_affected())
}

/// The version of the tables; zero where there are none.
async fn version(connection: &mut SqliteConnection) -> Done<i64> {
    let there = "SELECT count(*) FROM sqlite_master WHERE name = 'ruststream_meta'";
    let there: i64 = connection.fetch_one(there).await?.try_get(0)?;
    if there == 0 {
        return Ok(0);
    }
    let query = sqlx::query("SELECT version FROM ruststream_meta WHERE name = ?").bind(PART);
    match connection.fetch_optional(query).await? {
        Some(row) => row.try_get(0),
        None => Ok(0),
    }
}

//! The outbox on `MariaDB` and `MySQL`: by statements that both speak. Lists of ids stand in the text, since neither finds rows by index
//! that a subquery names.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Executor, MySql, Pool, Row};

use super::body::{mark, reads_records, same_for_all, tracks_by_values};
use super::sealed::{Operations, Writes};
use super::statements::{self, Dialect};
use super::{Done, Listening, OutboxConnection, OutboxDatabase};
use crate::outbox::records::{
    Claim, Finished, GivenUp, NewRecord, NewTracked, Old, Record, TrackedClaim, TrackedDue, TrackedEnd,
    TrackedLeftover, TrackedState, Waiting, Which,
};
use crate::outbox::relay::Status;

const DIALECT: Dialect = Dialect::MySql;

const PART: &str = "ruststream_outbox";

const META: &str = "CREATE TABLE IF NOT EXISTS ruststream_meta (name VARCHAR(100) CHARACTER SET ascii PRIMARY KEY, version BIGINT \
                    NOT NULL) ENGINE=InnoDB";

/// The statements at position `n` lead from version `n` to version `n + 1`. The server commits each of them by itself, so each is one
/// that finds its work done when it is run again.
const MIGRATIONS: [&[&str]; 1] = [&[
    "CREATE TABLE IF NOT EXISTS ruststream_outbox (
    id          BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    due_at      BIGINT        NOT NULL DEFAULT 0,
    held_until  BIGINT,
    token       BIGINT        NOT NULL DEFAULT 0,
    attempts    BIGINT        NOT NULL DEFAULT 0,
    written_at  BIGINT        NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000),
    ended_at    BIGINT,
    state       SMALLINT      NOT NULL DEFAULT 0,
    destination VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_key VARBINARY(500),
    headers     LONGBLOB      NOT NULL,
    payload     LONGBLOB      NOT NULL,
    error       TEXT          CHARACTER SET utf8mb4,
    KEY ruststream_outbox_due (state, due_at, id),
    KEY ruststream_outbox_held (held_until),
    KEY ruststream_outbox_ended (state, ended_at)
) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS ruststream_tracked (
    id          CHAR(32)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    resend_at   BIGINT        NOT NULL,
    held_until  BIGINT        NOT NULL DEFAULT 0,
    token       BIGINT        NOT NULL DEFAULT 0,
    attempts    BIGINT        NOT NULL DEFAULT 0,
    written_at  BIGINT        NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000),
    ended_at    BIGINT,
    state       SMALLINT      NOT NULL DEFAULT 0,
    consumer    VARBINARY(255) NOT NULL DEFAULT '',
    destination VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_key MEDIUMBLOB,
    headers     LONGBLOB      NOT NULL,
    payload     LONGBLOB      NOT NULL,
    KEY ruststream_tracked_resend (state, resend_at),
    KEY ruststream_tracked_ended (state, ended_at)
) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS ruststream_receipts (
    consumer    VARBINARY(255) NOT NULL,
    message_id  VARBINARY(255) NOT NULL,
    received_at BIGINT         NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000),
    PRIMARY KEY (consumer, message_id),
    KEY ruststream_receipts_received (received_at)
) ENGINE=InnoDB",
]];

const KNOWN: i64 = MIGRATIONS.len().cast_signed() as i64;

/// Held by one connection to a database at a time, for as long as it migrates: as for the tables of inboxes, since both make the
/// meta table.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('ruststream_', MD5(DATABASE())), 10)";
const UNLOCK: &str = "DO RELEASE_LOCK(CONCAT('ruststream_', MD5(DATABASE())))";

/// Claims of a database come one after the other: the next has to see what the last one holds.
const CLAIMS: &str = "SELECT version FROM ruststream_meta WHERE name = 'ruststream_outbox' FOR UPDATE";

impl OutboxDatabase for MySql {}

impl OutboxConnection for MySqlConnection {}

impl Writes for MySqlConnection {
    async fn receipt(&mut self, consumer: &str, message: &str) -> Done<bool> {
        MySql::receipt(self, consumer, message).await
    }
}

reads_records!(MySqlRow);

/// The most rows that one list names: above a thousand, `MariaDB` makes a table of it.
const LIST: u16 = 512;

async fn execute_ids(connection: &mut MySqlConnection, what: &str, ids: &[i64], token: i64) -> Done<u64> {
    let mut affected = 0;
    for ids in ids.chunks(usize::from(LIST)) {
        let text = DIALECT.text(&format!("{what} WHERE id IN ({}) AND token = {token}", numbers(ids)));
        affected += sqlx::raw_sql(AssertSqlSafe(text))
            .execute(&mut *connection)
            .await?
            .rows_affected();
    }
    Ok(affected)
}

fn numbers(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    ids.join(",")
}

/// Ids of tracked messages are hexadecimal digits: they need no escapes.
fn texts(ids: &[String]) -> String {
    format!("'{}'", ids.join("','"))
}

/// Bytes as they are written in a statement.
fn hex(bytes: &[u8]) -> String {
    let mut text = "x'".to_owned();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}

impl Operations for MySql {
    const ONE_INSERT: bool = false;
    const ONE_WRITER: bool = false;

    fn options(pool: &Pool<Self>) -> MySqlConnectOptions {
        (*pool.connect_options()).clone()
    }

    async fn settle_in(connection: &mut MySqlConnection) -> Done<()> {
        let session =
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION innodb_lock_wait_timeout = 5";
        sqlx::raw_sql(session).execute(&mut *connection).await?;
        // A process that is stopped in the middle of a transaction is thrown out by MariaDB. MySQL has no such setting.
        let _ = connection.execute("SET SESSION idle_transaction_timeout = 5").await;
        Ok(())
    }

    fn ddl() -> String {
        let mut text = format!("{META};\n");
        for statement in MIGRATIONS.concat() {
            let _ = writeln!(text, "{statement};");
        }
        let _ = writeln!(
            text,
            "INSERT INTO ruststream_meta (name, version) VALUES ('{PART}', {KNOWN});"
        );
        text
    }

    async fn prepare(connection: &mut MySqlConnection, migrate: bool) -> Done<()> {
        let version = version(connection).await?;
        if version == KNOWN {
            return Ok(());
        }
        super::known(version, KNOWN, migrate)?;
        // Of ten processes that start at once, the first does the work and the others find it done.
        let locked: Option<i64> = connection.fetch_one(sqlx::query(LOCK)).await?.try_get_unchecked(0)?;
        if locked != Some(1) {
            return Err(sqlx::Error::Configuration(
                "another process migrates the tables for longer than ten seconds; try again, or look what holds it up"
                    .into(),
            ));
        }
        let migrated = run(connection).await;
        let _ = connection.execute(UNLOCK).await;
        migrated
    }

    async fn turn(
        connection: &mut MySqlConnection,
        finished: Option<&Finished>,
        claim: Option<Claim>,
    ) -> Done<Vec<Record>> {
        static PROMOTE: LazyLock<String> = LazyLock::new(|| DIALECT.text(statements::PROMOTE));
        sqlx::raw_sql("START TRANSACTION").execute(&mut *connection).await?;
        if let Some(finished) = finished {
            mark!(DIALECT, connection, finished, execute_ids);
        }
        let mut records = Vec::new();
        if let Some(claim) = claim {
            sqlx::raw_sql(CLAIMS).fetch_all(&mut *connection).await?;
            sqlx::raw_sql(PROMOTE.as_str()).execute(&mut *connection).await?;
            // A plain read: it neither waits for rows that others have written and not committed, nor sees them.
            let select = format!(
                "SELECT {columns}, token FROM ruststream_outbox FORCE INDEX (ruststream_outbox_due) WHERE {claimable} \
                 ORDER BY id LIMIT {limit}",
                columns = statements::RECORD,
                claimable = DIALECT.claimable(claim.parked_stop),
                limit = claim.limit.min(i64::from(LIST)),
            );
            let mut ids = Vec::new();
            for row in sqlx::raw_sql(AssertSqlSafe(select)).fetch_all(&mut *connection).await? {
                let mut record = record(&row)?;
                let token: i64 = row.try_get_unchecked(6)?;
                record.attempts = record.attempts.saturating_add(u32::from(token != 0));
                ids.push(record.id);
                records.push(record);
            }
            if !ids.is_empty() {
                let text = DIALECT.text(&format!(
                    "UPDATE ruststream_outbox SET attempts = attempts + (token <> 0), token = {}, held_until = {{now}} + {} \
                     WHERE id IN ({})",
                    claim.token,
                    claim.lease,
                    numbers(&ids)
                ));
                sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *connection).await?;
            }
        }
        Self::commit(connection).await?;
        Ok(records)
    }

    async fn replay(connection: &mut MySqlConnection, which: &Which, keep_attempts: bool) -> Done<u64> {
        let attempts = statements::replayed_attempts(keep_attempts);
        which_rows(
            connection,
            &format!("UPDATE ruststream_outbox SET {}, {attempts}", statements::REPLAYED),
            which,
        )
        .await
    }

    async fn purge(connection: &mut MySqlConnection, which: &Which) -> Done<u64> {
        which_rows(connection, "DELETE FROM ruststream_outbox", which).await
    }

    async fn prune(connection: &mut MySqlConnection, old: Old, age: i64, limit: i64) -> Done<u64> {
        let (table, _, condition) = statements::old(old);
        let text = format!("DELETE FROM {table} WHERE {condition} LIMIT {limit}");
        let query = sqlx::query(AssertSqlSafe(DIALECT.text(&text))).bind(age);
        Ok(query.execute(connection).await?.rows_affected())
    }

    async fn receipt(connection: &mut MySqlConnection, consumer: &str, message: &str) -> Done<bool> {
        // What is too long was refused before: IGNORE would cut it.
        let text = "INSERT IGNORE INTO ruststream_receipts (consumer, message_id) VALUES (?, ?)";
        let stored = sqlx::query(text)
            .bind(consumer)
            .bind(message)
            .execute(connection)
            .await?;
        Ok(stored.rows_affected() == 1)
    }

    async fn tracked_claim(
        connection: &mut MySqlConnection,
        claim: &TrackedClaim,
    ) -> Done<Vec<(String, TrackedState)>> {
        let ids = texts(&claim.ids);
        let consumer = hex(claim.consumer.as_bytes());
        let text = DIALECT.text(&format!(
            "UPDATE ruststream_tracked SET token = {token}, held_until = {{now}} + {lease}, consumer = {consumer} \
             WHERE id IN ({ids}) AND state <> 2 AND held_until <= {{now}} AND (consumer = '' OR consumer = {consumer}); \
             SELECT id, CASE WHEN token = {token} THEN 3 WHEN consumer <> {consumer} THEN 2 WHEN state = 2 THEN 1 ELSE 0 END \
             FROM ruststream_tracked WHERE id IN ({ids})",
            token = claim.token,
            lease = claim.lease,
        ));
        let mut states = Vec::with_capacity(claim.ids.len());
        for row in sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(connection).await? {
            let id: String = row.try_get_unchecked(0)?;
            match row.try_get_unchecked::<i64, _>(1)? {
                3 => states.push((id, TrackedState::Granted)),
                known => super::note(&mut states, id, known),
            }
        }
        Ok(states)
    }

    async fn tracked_end(connection: &mut MySqlConnection, held: &[(String, i64)], end: TrackedEnd) -> Done<u64> {
        let pairs: Vec<String> = held
            .iter()
            .map(|(id, token)| format!("(id = '{id}' AND token = {token})"))
            .collect();
        let set = super::TRACKED_ENDS[super::place_of(end)];
        let set = match end {
            TrackedEnd::Renewed(lease) => set.replace('?', &lease.to_string()),
            _ => set.to_owned(),
        };
        let text = DIALECT.text(&format!(
            "UPDATE ruststream_tracked SET {set} WHERE {}",
            pairs.join(" OR ")
        ));
        Ok(sqlx::raw_sql(AssertSqlSafe(text))
            .execute(connection)
            .await?
            .rows_affected())
    }

    async fn tracked_due(connection: &mut MySqlConnection, due: TrackedDue) -> Done<Vec<TrackedLeftover>> {
        let select = DIALECT.text(&format!(
            "SELECT {}, CASE WHEN attempts >= {} THEN 1 ELSE 0 END FROM ruststream_tracked \
             WHERE state = 0 AND resend_at <= {{now}} AND held_until <= {{now}} ORDER BY resend_at LIMIT {} FOR UPDATE SKIP LOCKED",
            statements::RECORD,
            due.attempts,
            due.limit.min(i64::from(LIST))
        ));
        Self::begin(connection).await?;
        let mut leftovers = Vec::new();
        let mut ids = Vec::new();
        for row in sqlx::raw_sql(AssertSqlSafe(select)).fetch_all(&mut *connection).await? {
            ids.push(row.try_get_unchecked(0)?);
            if row.try_get_unchecked::<i64, _>(6)? == 0 {
                let mut leftover = leftover(&row)?;
                leftover.attempts += 1;
                leftovers.push(leftover);
            } else {
                super::tell_parked(&leftover(&row)?);
            }
        }
        if !ids.is_empty() {
            let set = super::resend(DIALECT, due);
            let text = format!("UPDATE ruststream_tracked SET {set} WHERE id IN ({})", texts(&ids));
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *connection).await?;
        }
        Self::commit(connection).await?;
        Ok(leftovers)
    }

    async fn tracked_undo(connection: &mut MySqlConnection, ids: &[String], resend: i64) -> Done<u64> {
        let text = super::TRACKED_UNDO.replace('?', &resend.to_string());
        let text = DIALECT.text(&format!("{text} WHERE id IN ({}) AND state = 0", texts(ids)));
        Ok(sqlx::raw_sql(AssertSqlSafe(text))
            .execute(connection)
            .await?
            .rows_affected())
    }

    async fn begin(connection: &mut MySqlConnection) -> Done<()> {
        sqlx::raw_sql("START TRANSACTION").execute(connection).await.map(|_| ())
    }

    async fn commit(connection: &mut MySqlConnection) -> Done<()> {
        sqlx::raw_sql("COMMIT").execute(connection).await.map(|_| ())
    }

    fn listen(_: Pool<Self>, _: bool, _: Arc<Status>) -> Option<Listening> {
        None
    }

    same_for_all!(DIALECT);
    tracks_by_values!(DIALECT);
}

async fn which_rows(connection: &mut MySqlConnection, what: &str, which: &Which) -> Done<u64> {
    match which {
        Which::Ids(ids) => {
            let mut affected = 0;
            for ids in ids.chunks(usize::from(LIST)) {
                let text = format!("{what} WHERE id IN ({}) AND state = 1", numbers(ids));
                affected += sqlx::raw_sql(AssertSqlSafe(text))
                    .execute(&mut *connection)
                    .await?
                    .rows_affected();
            }
            Ok(affected)
        }
        Which::Some(limit) => {
            let text = format!("{what} WHERE state = 1 ORDER BY id LIMIT {limit}");
            Ok(sqlx::raw_sql(AssertSqlSafe(text))
                .execute(connection)
                .await?
                .rows_affected())
        }
    }
}

async fn run(connection: &mut MySqlConnection) -> Done<()> {
    for (from, statements) in (0..KNOWN).zip(MIGRATIONS).skip(version(connection).await? as usize) {
        connection.execute(META).await?;
        for statement in statements {
            connection.execute(*statement).await?;
        }
        let record = format!(
            "REPLACE INTO ruststream_meta (name, version) VALUES ('{PART}', {})",
            from + 1
        );
        connection.execute(AssertSqlSafe(record)).await?;
    }
    Ok(())
}

/// The version of the tables; zero where there are none.
async fn version(connection: &mut MySqlConnection) -> Done<i64> {
    let there = "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'ruststream_meta'";
    let there: i64 = connection.fetch_one(sqlx::query(there)).await?.try_get_unchecked(0)?;
    if there == 0 {
        return Ok(0);
    }
    let query = format!("SELECT version FROM ruststream_meta WHERE name = '{PART}'");
    match connection.fetch_optional(AssertSqlSafe(query)).await? {
        Some(row) => row.try_get_unchecked(0),
        None => Ok(0),
    }
}

//! Requests as statements, and rows as answers.

use std::fmt::Write as _;

use ruststream::message::HeaderMap;
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlRow};
use sqlx::{Arguments, AssertSqlSafe, Executor, Row};

use super::dialect::{Link, MySqlDialect, held, hex, list};
use super::schema;
use super::statements::{self, due, since_1970};
use crate::clock::{from_millis, to_millis};
use crate::dead_letters::{DeadMessage, QueueCounts};
use crate::operation::{
    Administer, Answered, Choice, Claim, ClaimedRow, Decoded, LostRow, Needs, NewRow, PruneBatch, Which,
};
use crate::server::{Answers, Count, Peek, Ping, Renewals, SettleRows, Share, Store, Wake};

/// The longest error text that a dead letter keeps.
const ERROR_BYTES: usize = 64 * 1024;

/// A hundred years in milliseconds: the server's time ends in 9999.
const LONGEST_DELAY: i64 = 100 * 365 * 86_400_000;

/// The most rows that one list names: above a thousand, `MariaDB` makes a table of it.
const LIST: usize = 512;

impl Answers<Claim> for MySqlDialect {
    async fn answer(&self, link: &mut Link, claim: &Claim) -> Result<Decoded, sqlx::Error> {
        let select = |urgent, room| {
            format!(
                "SELECT id, attempt, {}, message_key, headers, payload, token {} LIMIT {room} FOR UPDATE SKIP LOCKED",
                since_1970!("published_at"),
                due(&hex(claim.queue.as_bytes()), claim.choice, urgent),
            )
        };
        let room = claim.room.min(LIST);
        let begin = format!("START TRANSACTION; {}", select(true, room));
        let (mut rows, _) = link.run(begin).await?;
        if claim.choice.priority && rows.len() < room {
            rows.extend(link.run(select(false, room - rows.len())).await?.0);
        }
        if rows.is_empty() {
            link.run(statements::ROLLBACK.to_owned()).await?;
            return Ok(Decoded::default());
        }
        let mut decoded = Decoded::default();
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            let id = row.try_get_unchecked(0)?;
            ids.push(id);
            let attempt: i64 = row.try_get_unchecked(1)?;
            let claimed = ClaimedRow {
                id,
                attempt: u32::try_from(attempt.saturating_add(1)).unwrap_or(u32::MAX),
                published_at: row.try_get_unchecked::<i64, _>(2)?.div_euclid(1_000),
                key: row.try_get_unchecked(3)?,
                headers: HeaderMap::new(),
                raw: None,
                payload: row.try_get_unchecked(5)?,
                unfinished: row.try_get_unchecked::<i64, _>(6)? != 0,
            };
            decoded.take(claimed, row.try_get_unchecked::<Option<&[u8]>, _>(4)?);
        }
        let lease = format!(
            "UPDATE ruststream_messages FORCE INDEX (PRIMARY) SET lease_until = UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND, token = {}, \
             attempt = attempt + 1 WHERE id IN ({}); COMMIT",
            micros(claim.lease),
            claim.token,
            list(ids),
        );
        link.run(lease).await?;
        Ok(decoded)
    }
}

impl Answers<Peek> for MySqlDialect {
    async fn answer(&self, link: &mut Link, peek: &Peek) -> Result<Vec<Option<i64>>, sqlx::Error> {
        let mut texts = String::new();
        for queue in &peek.queues {
            let queue = hex(queue.as_bytes());
            let _ = write!(
                texts,
                "SELECT (SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), due_at) \
                 FROM ruststream_messages FORCE INDEX (ruststream_messages_due) \
                 WHERE queue = {queue} AND state = 0 AND lease_until <= UTC_TIMESTAMP(6) ORDER BY due_at LIMIT 1); "
            );
        }
        let (rows, _) = link.run(texts).await?;
        rows.iter()
            .map(|row| {
                let left: Option<i64> = row.try_get_unchecked(0)?;
                Ok(left.map(|left| left.div_euclid(1_000)))
            })
            .collect()
    }
}

impl Answers<SettleRows> for MySqlDialect {
    async fn answer(&self, link: &mut Link, rows: &SettleRows) -> Result<u64, sqlx::Error> {
        let free = statements::FREE;
        let mut texts = Vec::new();
        match rows {
            SettleRows::Ack(rows) => {
                for rows in rows.chunks(LIST) {
                    texts.push(format!("{} WHERE {}", statements::DELETE, held(rows)));
                }
            }
            SettleRows::Keep(rows) => {
                for (id, token, keep) in rows {
                    texts.push(format!("{} WHERE {}", statements::keep(*keep), held(&[(*id, *token)])));
                }
            }
            SettleRows::Defer(rows) => {
                for (id, token, delay) in rows {
                    texts.push(format!(
                        "UPDATE ruststream_messages FORCE INDEX (PRIMARY) SET token = 0, lease_until = UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND, \
                         attempt = GREATEST(attempt - 1, 0) WHERE {}",
                        micros(*delay),
                        held(&[(*id, *token)])
                    ));
                }
            }
            SettleRows::Answer(rows) => return answer(link, rows).await,
            SettleRows::Release(rows) => {
                for rows in rows.chunks(LIST) {
                    texts.push(format!(
                        "UPDATE ruststream_messages FORCE INDEX (PRIMARY) SET {free}, attempt = GREATEST(attempt - 1, 0) WHERE {}",
                        held(rows)
                    ));
                }
            }
            SettleRows::Return(rows) => {
                for (id, token, attempts) in rows {
                    texts.push(format!(
                        "UPDATE ruststream_messages FORCE INDEX (PRIMARY) SET {free}, attempt = {attempts} WHERE {}",
                        held(&[(*id, *token)])
                    ));
                }
            }
            SettleRows::Retry(rows) => {
                for (id, token, delay) in rows {
                    texts.push(format!(
                        "UPDATE ruststream_messages FORCE INDEX (PRIMARY) SET {free}, due_at = UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND WHERE {}",
                        micros(*delay),
                        held(&[(*id, *token)])
                    ));
                }
            }
            SettleRows::Dead(rows) => {
                for (id, token, letter) in rows {
                    texts.push(format!(
                        "UPDATE ruststream_messages FORCE INDEX (PRIMARY) SET {free}, state = 1, dead_reason = {}, dead_error = {}, \
                         dead_attempts = {}, dead_source = {}, dead_at = '1970-01-01' + INTERVAL {} MICROSECOND WHERE {}",
                        text(letter.reason.as_str()),
                        text(&letter.error),
                        letter.attempts,
                        text(&letter.source),
                        to_millis(letter.at).saturating_mul(1_000),
                        held(&[(*id, *token)])
                    ));
                }
            }
        }
        let all = match &texts[..] {
            texts if link.within => texts.join("; "),
            [one] => one.clone(),
            texts => format!("START TRANSACTION; {}; COMMIT", texts.join("; ")),
        };
        Ok(link.run(all).await?.1)
    }
}

/// Acks rows and stores the replies to those that were held still.
async fn answer(link: &mut Link, rows: &[Answered]) -> Result<u64, sqlx::Error> {
    let asked: Vec<(i64, i64)> = rows.iter().map(|row| (row.id, row.token)).collect();
    let mut locked = Vec::with_capacity(rows.len());
    let mut begin = if link.within { "" } else { "START TRANSACTION; " };
    for rows in asked.chunks(LIST) {
        let lock = format!(
            "{begin}SELECT id FROM ruststream_messages FORCE INDEX (PRIMARY) WHERE {} ORDER BY id FOR UPDATE",
            held(rows)
        );
        begin = "";
        for row in link.run(lock).await?.0 {
            locked.push(row.try_get_unchecked::<i64, _>(0)?);
        }
    }
    let held_rows = || rows.iter().filter(|row| locked.binary_search(&row.id).is_ok());
    let replies: Vec<&NewRow> = held_rows().flat_map(|row| row.replies.iter()).collect();
    if let Err(error) = insert(&mut link.connection, &replies).await {
        let _ = link.run(statements::ROLLBACK.to_owned()).await;
        return Err(error);
    }
    let gone: Vec<i64> = held_rows().filter(|row| row.keep.is_none()).map(|row| row.id).collect();
    let mut texts = Vec::new();
    for ids in gone.chunks(LIST) {
        let ids = list(ids.iter().copied());
        texts.push(format!("{} WHERE id IN ({ids})", statements::DELETE));
    }
    for row in held_rows() {
        if let Some(keep) = row.keep {
            texts.push(format!("{} WHERE id = {}", statements::keep(keep), row.id));
        }
    }
    if !link.within {
        texts.push("COMMIT".to_owned());
    }
    if !texts.is_empty() {
        link.run(texts.join("; ")).await?;
    }
    Ok(locked.len() as u64)
}

impl Answers<Store<'_>> for MySqlDialect {
    async fn answer(&self, link: &mut Link, store: &Store<'_>) -> Result<Vec<usize>, sqlx::Error> {
        let rows: Vec<&NewRow> = store.rows.iter().collect();
        let more = rows.iter().any(|row| row.extras.is_some());
        let several = rows.len() > 1 && (more || statements::insert_size(rows.len()) < rows.len());
        if several {
            link.run("START TRANSACTION".to_owned()).await?;
        }
        let stored = insert(&mut link.connection, &rows).await;
        if several {
            let end = if stored.is_ok() { "COMMIT" } else { statements::ROLLBACK };
            let ended = link.run(end.to_owned()).await;
            if stored.is_ok() {
                ended?;
            }
        }
        stored
    }
}

/// Inserts rows; answers the places of those whose unique key was there.
pub(super) async fn insert(connection: &mut MySqlConnection, rows: &[&NewRow]) -> Result<Vec<usize>, sqlx::Error> {
    let mut duplicates = Vec::new();
    let mut start = 0;
    while start < rows.len() {
        if rows[start].extras.is_some() {
            let insert = sqlx::query_with(statements::INSERT_MORE, more(rows[start])?);
            match connection.execute(insert).await {
                Err(error) if schema::is_duplicate(&error) => duplicates.push(start),
                stored => stored.map(drop)?,
            }
            start += 1;
            continue;
        }
        let alike = rows[start..].iter().take_while(|row| row.extras.is_none()).count();
        let size = statements::insert_size(alike);
        let text = AssertSqlSafe(statements::insert(size));
        let insert = sqlx::query_with(text, columns(&rows[start..start + size])?);
        connection.execute(insert).await?;
        start += size;
    }
    Ok(duplicates)
}

/// The values of a row that has more.
fn more(row: &NewRow) -> Result<MySqlArguments, sqlx::Error> {
    let extras = row.extras.as_deref().cloned().unwrap_or_default();
    let mut values = MySqlArguments::default();
    let mut fill = || {
        values.add(row.queue.as_bytes())?;
        values.add(extras.run_at.map(micros_since_1970))?;
        values.add(micros(row.delay))?;
        values.add(row.key.as_deref())?;
        values.add(row.headers.as_deref())?;
        values.add(&row.payload[..])?;
        values.add(extras.priority.cast_signed())?;
        values.add(extras.unique.as_deref().map(str::as_bytes))
    };
    fill().map_err(sqlx::Error::Encode)?;
    Ok(values)
}

/// Bounded by the times that the server knows.
fn micros_since_1970(millis: i64) -> i64 {
    /// The year 9000.
    const LATEST: i64 = 221_845_392_000_000;
    millis.clamp(0, LATEST) * 1_000
}

impl Answers<Needs> for MySqlDialect {
    async fn answer(&self, link: &mut Link, needs: &Needs) -> Result<Vec<&'static str>, sqlx::Error> {
        if let Some((queue, group, place)) = &needs.group {
            let join = sqlx::query(statements::JOIN_GROUP)
                .bind(queue.as_bytes())
                .bind(group.as_bytes())
                .bind(place.as_bytes());
            link.connection.execute(join).await?;
        }
        let mut missing = Vec::new();
        for (name, index) in schema::indexes(needs.choice) {
            let there = sqlx::query(statements::HAS_INDEX).bind(name);
            if link.connection.fetch_optional(there).await?.is_some() {
                continue;
            }
            if !needs.make {
                missing.push(index);
                continue;
            }
            match link.connection.execute(index).await {
                Err(error) if !schema::is_done(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(missing)
    }
}

impl Answers<PruneBatch> for MySqlDialect {
    async fn answer(&self, link: &mut Link, batch: &PruneBatch) -> Result<u64, sqlx::Error> {
        let queue = hex(batch.queue.as_bytes());
        let limit = batch.limit;
        let mut pruned = self
            .prune(
                link,
                format!("state = 2 AND due_at <= UTC_TIMESTAMP(6) AND queue = {queue} ORDER BY due_at LIMIT {limit}"),
            )
            .await?;
        if let Some(keep) = batch.keep_dead {
            let old = format!(
                "state = 1 AND dead_at < UTC_TIMESTAMP(6) - INTERVAL {} MICROSECOND AND queue = {queue} LIMIT {limit}",
                micros(keep)
            );
            pruned = pruned.max(self.prune(link, old).await?);
        }
        Ok(pruned)
    }
}

impl MySqlDialect {
    /// Deletes rows. It waits for what others have locked: a claim locks the first row behind those it looks at, too.
    async fn prune(&self, link: &mut Link, which: String) -> Result<u64, sqlx::Error> {
        let lock = format!("START TRANSACTION; SELECT id FROM ruststream_messages WHERE {which} FOR UPDATE");
        let (rows, _) = link.run(lock).await?;
        let ids: Vec<i64> = rows
            .iter()
            .map(|row| row.try_get_unchecked(0))
            .collect::<Result<_, _>>()?;
        let end = if ids.is_empty() {
            statements::ROLLBACK.to_owned()
        } else {
            format!("{} WHERE id IN ({}); COMMIT", statements::DELETE, list(ids))
        };
        Ok(link.run(end).await?.1)
    }
}

impl Answers<Share<'_>> for MySqlDialect {
    async fn answer(&self, link: &mut Link, share: &Share<'_>) -> Result<u64, sqlx::Error> {
        let select = format!(
            "START TRANSACTION; SELECT id {} LIMIT {} FOR UPDATE SKIP LOCKED",
            due(&hex(share.queue.as_bytes()), Choice::default(), false),
            share.limit
        );
        let (rows, _) = link.run(select).await?;
        let ids: Vec<i64> = rows
            .iter()
            .map(|row| row.try_get_unchecked(0))
            .collect::<Result<_, _>>()?;
        if ids.is_empty() {
            link.run(statements::ROLLBACK.to_owned()).await?;
            return Ok(0);
        }
        let ids = list(ids);
        let columns = "due_at, published_at, attempt, priority, unique_key, message_key, headers, payload";
        let share = format!(
            "INSERT IGNORE INTO ruststream_messages (queue, {columns}) SELECT g.place, {columns} FROM ruststream_messages AS m \
             JOIN ruststream_groups AS g ON g.queue = m.queue WHERE m.id IN ({ids}) ORDER BY m.due_at, m.id; \
             DELETE FROM ruststream_messages WHERE id IN ({ids}); COMMIT"
        );
        Ok(link.run(share).await?.1)
    }
}

/// The values of rows, one after another.
fn columns(rows: &[&NewRow]) -> Result<MySqlArguments, sqlx::Error> {
    let mut values = MySqlArguments::default();
    let mut fill = || {
        for row in rows {
            values.add(row.queue.as_bytes())?;
            values.add(micros(row.delay))?;
            values.add(row.key.as_deref())?;
            values.add(row.headers.as_deref())?;
            values.add(&row.payload[..])?;
        }
        Ok(())
    };
    fill().map_err(sqlx::Error::Encode)?;
    Ok(values)
}

impl Answers<Wake> for MySqlDialect {
    /// The server has no way to tell; others find it by polling.
    async fn answer(&self, _: &mut Link, _: &Wake) -> Result<(), sqlx::Error> {
        Ok(())
    }
}

impl Answers<Renewals> for MySqlDialect {
    async fn answer(&self, link: &mut Link, renewals: &Renewals) -> Result<Vec<LostRow>, sqlx::Error> {
        let mut lost = Vec::new();
        for rows in renewals.rows.chunks(LIST) {
            let lock = format!(
                "START TRANSACTION; SELECT id FROM ruststream_messages FORCE INDEX (PRIMARY) WHERE {} ORDER BY id FOR UPDATE SKIP LOCKED",
                held(rows)
            );
            let (locked, _) = link.run(lock).await?;
            let locked: Vec<i64> = locked
                .iter()
                .map(|row| row.try_get_unchecked(0))
                .collect::<Result<_, _>>()?;
            let extend = if locked.is_empty() {
                statements::ROLLBACK.to_owned()
            } else {
                format!(
                    "UPDATE ruststream_messages FORCE INDEX (PRIMARY) SET lease_until = UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND \
                     WHERE id IN ({}); COMMIT",
                    micros(renewals.lease),
                    list(locked.iter().copied())
                )
            };
            link.run(extend).await?;
            let missing: Vec<(i64, i64)> = rows
                .iter()
                .copied()
                .filter(|(id, _)| locked.binary_search(id).is_err())
                .collect();
            if missing.is_empty() {
                continue;
            }
            // What someone has locked is being settled, or was lost: its token tells.
            let ids = list(missing.iter().map(|row| row.0));
            let tokens = format!("SELECT id, token FROM ruststream_messages WHERE id IN ({ids})");
            let (found, _) = link.run(tokens).await?;
            let found: Vec<(i64, i64)> = found
                .iter()
                .map(|row| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?)))
                .collect::<Result<_, sqlx::Error>>()?;
            for (id, token) in missing {
                match found.iter().find(|row| row.0 == id) {
                    Some((_, now)) if *now == token => {}
                    other => lost.push(LostRow {
                        id,
                        token,
                        gone: other.is_none(),
                    }),
                }
            }
        }
        Ok(lost)
    }
}

impl Answers<Administer> for MySqlDialect {
    async fn answer(&self, link: &mut Link, what: &Administer) -> Result<Vec<i64>, sqlx::Error> {
        let which = match what {
            Administer::Replay { id, .. } | Administer::Purge { id } => format!("id = {id} AND state = 1"),
            Administer::ReplayQueue { queue, after, limit } | Administer::PurgeQueue { queue, after, limit } => {
                let queue = hex(queue.as_bytes());
                format!("queue = {queue} AND state = 1 AND id > {after} ORDER BY id LIMIT {limit}")
            }
        };
        let lock = format!("START TRANSACTION; SELECT id FROM ruststream_messages WHERE {which} FOR UPDATE");
        let (rows, _) = link.run(lock).await?;
        let ids: Vec<i64> = rows
            .iter()
            .map(|row| row.try_get_unchecked(0))
            .collect::<Result<_, _>>()?;
        if ids.is_empty() {
            link.run(statements::ROLLBACK.to_owned()).await?;
            return Ok(ids);
        }
        let named = list(ids.iter().copied());
        let change = match what {
            Administer::Replay { kept: true, .. } => statements::REPLAY_KEPT,
            Administer::Replay { .. } | Administer::ReplayQueue { .. } => statements::REPLAY,
            Administer::Purge { .. } | Administer::PurgeQueue { .. } => "DELETE FROM ruststream_messages",
        };
        link.run(format!("{change} WHERE id IN ({named}); COMMIT")).await?;
        Ok(ids)
    }
}

impl Answers<Which> for MySqlDialect {
    async fn answer(&self, link: &mut Link, which: &Which) -> Result<Vec<DeadMessage>, sqlx::Error> {
        let columns = statements::DEAD_COLUMNS;
        let select = match which {
            Which::Of { queue, after, limit } => format!(
                "{columns} WHERE queue = {} AND state = 1 AND id > {after} ORDER BY id LIMIT {limit}",
                hex(queue.as_bytes())
            ),
            Which::One { id } => format!("{columns} WHERE id = {id} AND state = 1"),
        };
        link.run(select).await?.0.iter().map(dead_message).collect()
    }
}

impl Answers<Count> for MySqlDialect {
    async fn answer(&self, link: &mut Link, Count(queue): &Count) -> Result<QueueCounts, sqlx::Error> {
        let queue = hex(queue.as_bytes());
        let count = |condition: &str| format!("CAST(coalesce(sum(state = 0 AND {condition}), 0) AS SIGNED)");
        let select = format!(
            "SELECT {}, {}, {}, CAST(coalesce(sum(state = 1), 0) AS SIGNED) FROM ruststream_messages WHERE queue = {queue}",
            count("due_at <= UTC_TIMESTAMP(6) AND lease_until <= UTC_TIMESTAMP(6)"),
            count("lease_until > UTC_TIMESTAMP(6)"),
            count("due_at > UTC_TIMESTAMP(6) AND lease_until <= UTC_TIMESTAMP(6)"),
        );
        let (rows, _) = link.run(select).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let count = |index: usize| {
            row.try_get_unchecked::<i64, _>(index)
                .map(|count| count.max(0).cast_unsigned())
        };
        Ok(QueueCounts {
            ready: count(0)?,
            leased: count(1)?,
            scheduled: count(2)?,
            dead: count(3)?,
        })
    }
}

impl Answers<Ping> for MySqlDialect {
    async fn answer(&self, link: &mut Link, _: &Ping) -> Result<(), sqlx::Error> {
        link.run("SELECT 1".to_owned()).await.map(drop)
    }
}

fn dead_message(row: &MySqlRow) -> Result<DeadMessage, sqlx::Error> {
    let header_block: Vec<u8> = row.try_get_unchecked::<Option<Vec<u8>>, _>(9)?.unwrap_or_default();
    let string = |index: usize| -> Result<String, sqlx::Error> {
        Ok(String::from_utf8_lossy(row.try_get_unchecked(index)?).into_owned())
    };
    let time = |index: usize| -> Result<_, sqlx::Error> {
        Ok(from_millis(row.try_get_unchecked::<i64, _>(index)?.div_euclid(1_000)))
    };
    Ok(DeadMessage {
        id: row.try_get_unchecked(0)?,
        queue: string(1)?,
        reason: string(2)?,
        error: string(3)?,
        attempts: u32::try_from(row.try_get_unchecked::<i64, _>(4)?).unwrap_or(u32::MAX),
        source: string(5)?,
        dead_at: time(6)?,
        published_at: time(7)?,
        key: row.try_get_unchecked(8)?,
        headers: HeaderMap::from_block(&header_block).unwrap_or_default(),
        header_block,
        payload: row.try_get_unchecked(10)?,
    })
}

/// A delay or lease in microseconds, bounded so that the sum is a time that the server knows.
pub(super) fn micros(millis: i64) -> i64 {
    millis.clamp(0, LONGEST_DELAY) * 1_000
}

/// A text as it stands in a statement, of bounded length.
fn text(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(ERROR_BYTES)];
    format!("CONVERT({} USING utf8mb4)", hex(text.as_bytes()))
}

//! Requests as statements, and rows as answers.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::sync::Arc;

use ruststream::message::HeaderMap;
use sqlx::postgres::{PgArguments, PgRow, PgValueRef};
use sqlx::{Arguments, Row, ValueRef};

use super::dialect::{Link, PostgresDialect};
use super::{schema, statements};
use crate::clock::{from_millis, to_millis};
use crate::dead_letters::{DeadMessage, QueueCounts};
use crate::operation::{Administer, Answered, Claim, ClaimedRow, Decoded, LostRow, Needs, NewRow, PruneBatch, Which};
use crate::server::{Answers, Count, Peek, Ping, Renewals, SettleRows, Share, Store, Wake};

/// The longest error text that a dead letter keeps.
const ERROR_BYTES: usize = 64 * 1024;

/// Microseconds from 1970 to 2000, where the server's time begins.
const EPOCH: i64 = 946_684_800_000_000;

/// Gathers the values of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => {{
        let mut arguments = PgArguments::default();
        $(arguments.add($value).map_err(sqlx::Error::Encode)?;)*
        arguments
    }};
}

impl Answers<Claim> for PostgresDialect {
    async fn answer(&self, link: &mut Link, claim: &Claim) -> Result<Decoded, sqlx::Error> {
        let room = i64::try_from(claim.room).unwrap_or(i64::MAX);
        let rows = link
            .rows(
                match (claim.choice.fifo, claim.choice.priority) {
                    (false, false) => statements::CLAIM,
                    (true, false) => statements::CLAIM_FIFO,
                    (false, true) => statements::CLAIM_BY_PRIORITY,
                    (true, true) => statements::CLAIM_FIFO_BY_PRIORITY,
                },
                values![&*claim.queue, room, claim.lease.min(LONGEST_DELAY), claim.token],
            )
            .await?;
        // Answered in the order of their pages, which is nearly the one that is wanted.
        let mut sorted = Vec::with_capacity(rows.len());
        for row in &rows {
            // Without the setting, a priority changes no order.
            let rank = if claim.choice.priority {
                -row.try_get::<i16, _>(8)?
            } else {
                0
            };
            sorted.push(((rank, micros(&row.try_get_raw(1)?)?), row.try_get::<i64, _>(0)?, row));
        }
        sorted.sort_by_key(|(place, id, _)| (*place, *id));
        let mut decoded = Decoded::default();
        for (_, id, row) in sorted {
            let claimed = ClaimedRow {
                id,
                attempt: u32::try_from(row.try_get::<i32, _>(2)?).unwrap_or(1),
                unfinished: row.try_get(3)?,
                published_at: millis(&row.try_get_raw(4)?)?,
                key: row.try_get(5)?,
                headers: HeaderMap::new(),
                raw: None,
                payload: row.try_get(7)?,
            };
            decoded.take(claimed, row.try_get::<Option<&[u8]>, _>(6)?);
        }
        Ok(decoded)
    }
}

impl Answers<Peek> for PostgresDialect {
    async fn answer(&self, link: &mut Link, peek: &Peek) -> Result<Vec<Option<i64>>, sqlx::Error> {
        let queues: Vec<&str> = peek.queues.iter().map(|queue| &**queue).collect();
        let rows = link.rows(statements::PEEK, values![&queues[..]]).await?;
        rows.iter()
            .map(|row| {
                let due = row.try_get_raw(0)?;
                if due.is_null() {
                    return Ok(None);
                }
                let left = micros(&due)?.saturating_sub(micros(&row.try_get_raw(1)?)?);
                Ok(Some(left.div_euclid(1_000)))
            })
            .collect()
    }
}

impl Answers<SettleRows> for PostgresDialect {
    async fn answer(&self, link: &mut Link, rows: &SettleRows) -> Result<u64, sqlx::Error> {
        match rows {
            SettleRows::Ack(rows) => {
                let (ids, tokens): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
                link.change(statements::ACK, values![ids, tokens]).await
            }
            SettleRows::Keep(rows) => link.change(statements::KEEP, with_delays(rows)?).await,
            SettleRows::Defer(rows) => link.change(statements::DEFER, with_delays(rows)?).await,
            SettleRows::Answer(rows) => {
                let answered = link.rows(statements::ANSWER, replies(rows)?).await?;
                let held: i64 = answered.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
                Ok(held.max(0).cast_unsigned())
            }
            SettleRows::Release(rows) => {
                let (ids, tokens): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
                link.change(statements::RELEASE, values![ids, tokens]).await
            }
            SettleRows::Return(rows) => {
                let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
                let tokens: Vec<i64> = rows.iter().map(|row| row.1).collect();
                let attempts: Vec<i32> = rows
                    .iter()
                    .map(|row| i32::try_from(row.2).unwrap_or(i32::MAX))
                    .collect();
                link.change(statements::RETURN, values![ids, tokens, attempts]).await
            }
            SettleRows::Retry(rows) => link.change(statements::RETRY, with_delays(rows)?).await,
            SettleRows::Dead(rows) => {
                let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
                let tokens: Vec<i64> = rows.iter().map(|row| row.1).collect();
                let reasons: Vec<&str> = rows.iter().map(|row| row.2.reason.as_str()).collect();
                let errors: Vec<String> = rows.iter().map(|row| storable(&row.2.error)).collect();
                let attempts: Vec<i64> = rows.iter().map(|row| i64::from(row.2.attempts)).collect();
                let sources: Vec<String> = rows.iter().map(|row| storable(&row.2.source)).collect();
                let times: Vec<i64> = rows.iter().map(|row| to_millis(row.2.at)).collect();
                let values = values![ids, tokens, reasons, errors, attempts, sources, times];
                link.change(statements::DEAD, values).await
            }
        }
    }
}

/// Ids, tokens and times.
fn with_delays(rows: &[(i64, i64, i64)]) -> Result<PgArguments, sqlx::Error> {
    let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
    let tokens: Vec<i64> = rows.iter().map(|row| row.1).collect();
    // The server's time ends in the year 294276.
    let delays: Vec<i64> = rows.iter().map(|row| row.2.min(LONGEST_DELAY)).collect();
    Ok(values![ids, tokens, delays])
}

/// The values of `ANSWER`.
fn replies(rows: &[Answered]) -> Result<PgArguments, sqlx::Error> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let tokens: Vec<i64> = rows.iter().map(|row| row.token).collect();
    let keeps: Vec<Option<i64>> = rows
        .iter()
        .map(|row| row.keep.map(|keep| keep.min(LONGEST_DELAY)))
        .collect();
    let replies: Vec<(i64, &NewRow)> = rows
        .iter()
        .flat_map(|row| row.replies.iter().map(|reply| (row.id, reply)))
        .collect();
    let owners: Vec<i64> = replies.iter().map(|(id, _)| *id).collect();
    let mut values = values![ids, tokens, keeps, owners];
    let replies: Vec<&NewRow> = replies.into_iter().map(|(_, reply)| reply).collect();
    add_columns(&mut values, &replies)?;
    add_extras(&mut values, &replies)?;
    Ok(values)
}

/// 200,000 years, in milliseconds.
pub(super) const LONGEST_DELAY: i64 = 6_300_000_000_000_000;

impl Answers<Store<'_>> for PostgresDialect {
    async fn answer(&self, link: &mut Link, store: &Store<'_>) -> Result<Vec<usize>, sqlx::Error> {
        if store.rows.iter().any(|row| row.extras.is_some()) {
            return self.store_more(link, store).await;
        }
        if let ([row], []) = (store.rows, store.wake) {
            let delay = row.delay.min(LONGEST_DELAY);
            let values = values![
                &*row.queue,
                delay,
                row.key.as_deref(),
                row.headers.as_deref(),
                &row.payload[..]
            ];
            link.change(statements::STORE_ONE, values).await?;
        } else if store.wake.is_empty() {
            let mut values = PgArguments::default();
            add_columns(&mut values, store.rows)?;
            link.change(statements::STORE, values).await?;
        } else {
            let values = store_and_tell(store.rows, &self.tag, store.wake)?;
            link.change(statements::STORE_AND_TELL, values).await?;
        }
        Ok(Vec::new())
    }
}

impl PostgresDialect {
    /// Stores rows some of which have more than most; answers the places of those that were there.
    async fn store_more(&self, link: &mut Link, store: &Store<'_>) -> Result<Vec<usize>, sqlx::Error> {
        let found = link.rows(statements::STORE_MORE, more(store.rows)?).await?;
        if !store.wake.is_empty() {
            let wake = Wake {
                queues: store.wake.to_vec(),
            };
            // Who waits finds it by polling otherwise.
            let _ = Answers::<Wake>::answer(self, link, &wake).await;
        }
        let mut new: HashSet<(&str, &str)> = HashSet::new();
        for row in &found {
            if let Some(key) = row.try_get::<Option<&str>, _>(1)? {
                new.insert((row.try_get(0)?, key));
            }
        }
        // Of two with one key in one statement the first is the new one.
        let rows = store.rows.iter().enumerate();
        let there = rows.filter(|(_, row)| row.unique().is_some_and(|key| !new.remove(&(&*row.queue, key))));
        Ok(there.map(|(place, _)| place).collect())
    }
}

/// The values of `STORE_MORE`.
pub(super) fn more(rows: &[NewRow]) -> Result<PgArguments, sqlx::Error> {
    let mut values = PgArguments::default();
    add_columns(&mut values, rows)?;
    add_extras(&mut values, rows)?;
    Ok(values)
}

/// The values of `STORE_AND_TELL`.
pub(super) fn store_and_tell(rows: &[NewRow], tag: &str, wake: &[Arc<str>]) -> Result<PgArguments, sqlx::Error> {
    let wake: Vec<&str> = wake.iter().map(|queue| &**queue).collect();
    let mut values = PgArguments::default();
    add_columns(&mut values, rows)?;
    values.add(tag).map_err(sqlx::Error::Encode)?;
    values.add(wake).map_err(sqlx::Error::Encode)?;
    Ok(values)
}

/// Adds the values of rows, a list for each column.
fn add_columns<R: Borrow<NewRow>>(values: &mut PgArguments, rows: &[R]) -> Result<(), sqlx::Error> {
    let rows = || rows.iter().map(Borrow::borrow);
    let mut add = || {
        values.add(rows().map(|row| &*row.queue).collect::<Vec<&str>>())?;
        values.add(rows().map(|row| row.delay.min(LONGEST_DELAY)).collect::<Vec<i64>>())?;
        values.add(rows().map(|row| row.key.as_deref()).collect::<Vec<Option<&[u8]>>>())?;
        values.add(rows().map(|row| row.headers.as_deref()).collect::<Vec<Option<&[u8]>>>())?;
        values.add(rows().map(|row| &row.payload[..]).collect::<Vec<&[u8]>>())
    };
    add().map_err(sqlx::Error::Encode)
}

/// Adds what few rows have, a list for each column.
fn add_extras<R: Borrow<NewRow>>(values: &mut PgArguments, rows: &[R]) -> Result<(), sqlx::Error> {
    let rows = || rows.iter().map(Borrow::borrow);
    let run_at = |row: &NewRow| row.extras.as_ref()?.run_at.map(|at| at.min(LONGEST_DELAY));
    let priority = |row: &NewRow| row.extras.as_ref().map_or(0, |extras| extras.priority.cast_signed());
    let mut add = || {
        values.add(rows().map(run_at).collect::<Vec<Option<i64>>>())?;
        values.add(rows().map(priority).collect::<Vec<i16>>())?;
        values.add(rows().map(NewRow::unique).collect::<Vec<Option<&str>>>())
    };
    add().map_err(sqlx::Error::Encode)
}

impl Answers<Needs> for PostgresDialect {
    async fn answer(&self, link: &mut Link, needs: &Needs) -> Result<Vec<&'static str>, sqlx::Error> {
        if let Some((queue, group, place)) = &needs.group {
            link.change(statements::JOIN_GROUP, values![&**queue, &**group, &**place])
                .await?;
        }
        let mut missing = Vec::new();
        for (name, index) in schema::indexes(needs.choice) {
            if link.rows(statements::HAS_INDEX, values![name]).await?.is_empty() {
                missing.push(index);
            }
        }
        if needs.make && !missing.is_empty() {
            link.script(&schema::together(&missing)).await?;
            missing.clear();
        }
        Ok(missing)
    }
}

impl Answers<PruneBatch> for PostgresDialect {
    async fn answer(&self, link: &mut Link, batch: &PruneBatch) -> Result<u64, sqlx::Error> {
        let mut pruned = link
            .change(statements::PRUNE, values![&*batch.queue, batch.limit])
            .await?;
        if let Some(keep) = batch.keep_dead {
            let values = values![&*batch.queue, keep.min(LONGEST_DELAY), batch.limit];
            pruned = pruned.max(link.change(statements::PRUNE_DEAD, values).await?);
        }
        Ok(pruned)
    }
}

impl Answers<Share<'_>> for PostgresDialect {
    async fn answer(&self, link: &mut Link, share: &Share<'_>) -> Result<u64, sqlx::Error> {
        link.change(statements::SHARE, values![share.queue, share.limit]).await
    }
}

impl Answers<Wake> for PostgresDialect {
    async fn answer(&self, link: &mut Link, wake: &Wake) -> Result<(), sqlx::Error> {
        let queues: Vec<&str> = wake.queues.iter().map(|queue| &**queue).collect();
        link.change(statements::TELL, values![&*self.tag, queues]).await?;
        Ok(())
    }
}

impl Answers<Renewals> for PostgresDialect {
    async fn answer(&self, link: &mut Link, renewals: &Renewals) -> Result<Vec<LostRow>, sqlx::Error> {
        let (ids, tokens): (Vec<i64>, Vec<i64>) = renewals.rows.iter().copied().unzip();
        let renewed = link
            .change(
                statements::RENEW,
                values![&ids[..], &tokens[..], renewals.lease.min(LONGEST_DELAY)],
            )
            .await?;
        if renewed as usize >= ids.len() {
            return Ok(Vec::new());
        }
        let rows = link.rows(statements::LOST, values![ids, tokens]).await?;
        rows.iter()
            .map(|row| {
                Ok(LostRow {
                    id: row.try_get(0)?,
                    token: row.try_get(1)?,
                    gone: row.try_get(2)?,
                })
            })
            .collect()
    }
}

impl Answers<Administer> for PostgresDialect {
    async fn answer(&self, link: &mut Link, what: &Administer) -> Result<Vec<i64>, sqlx::Error> {
        let rows = match what {
            Administer::Replay { id, kept: false } => link.rows(statements::REPLAY, values![*id]).await?,
            Administer::Replay { id, kept: true } => link.rows(statements::REPLAY_KEPT, values![*id]).await?,
            Administer::ReplayQueue { queue, after, limit } => {
                link.rows(statements::REPLAY_QUEUE, values![&**queue, *after, *limit])
                    .await?
            }
            Administer::Purge { id } => link.rows(statements::PURGE, values![*id]).await?,
            Administer::PurgeQueue { queue, after, limit } => {
                link.rows(statements::PURGE_QUEUE, values![&**queue, *after, *limit])
                    .await?
            }
        };
        rows.iter().map(|row| row.try_get(0)).collect()
    }
}

impl Answers<Which> for PostgresDialect {
    async fn answer(&self, link: &mut Link, which: &Which) -> Result<Vec<DeadMessage>, sqlx::Error> {
        let rows = match which {
            Which::Of { queue, after, limit } => {
                link.rows(statements::DEAD_LIST, values![&**queue, *after, *limit])
                    .await?
            }
            Which::One { id } => link.rows(statements::DEAD_SHOW, values![*id]).await?,
        };
        rows.iter().map(dead_message).collect()
    }
}

impl Answers<Count> for PostgresDialect {
    async fn answer(&self, link: &mut Link, Count(queue): &Count) -> Result<QueueCounts, sqlx::Error> {
        let rows = link.rows(statements::COUNTS, values![&**queue]).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let count = |index: usize| row.try_get::<i64, _>(index).map(|count| count.max(0).cast_unsigned());
        Ok(QueueCounts {
            ready: count(0)?,
            leased: count(1)?,
            scheduled: count(2)?,
            dead: count(3)?,
        })
    }
}

impl Answers<Ping> for PostgresDialect {
    async fn answer(&self, link: &mut Link, _: &Ping) -> Result<(), sqlx::Error> {
        link.rows(statements::PING, PgArguments::default()).await.map(drop)
    }
}

fn dead_message(row: &PgRow) -> Result<DeadMessage, sqlx::Error> {
    let header_block: Vec<u8> = row.try_get::<Option<Vec<u8>>, _>(9)?.unwrap_or_default();
    let attempts: i64 = row.try_get(4)?;
    Ok(DeadMessage {
        id: row.try_get(0)?,
        queue: row.try_get(1)?,
        reason: row.try_get(2)?,
        error: row.try_get(3)?,
        attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
        source: row.try_get(5)?,
        dead_at: from_millis(millis(&row.try_get_raw(6)?)?),
        published_at: from_millis(millis(&row.try_get_raw(7)?)?),
        key: row.try_get(8)?,
        headers: HeaderMap::from_block(&header_block).unwrap_or_default(),
        header_block,
        payload: row.try_get(10)?,
    })
}

/// A time in microseconds since 2000, as it travels; the ends of time are the ends of the numbers.
fn micros(value: &PgValueRef<'_>) -> Result<i64, sqlx::Error> {
    let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
    let bytes = bytes
        .try_into()
        .map_err(|_| sqlx::Error::Decode("a time of another size than eight bytes".into()))?;
    Ok(i64::from_be_bytes(bytes))
}

/// A time in milliseconds since 1970.
fn millis(value: &PgValueRef<'_>) -> Result<i64, sqlx::Error> {
    Ok(micros(value)?.saturating_add(EPOCH).div_euclid(1_000))
}

/// A text of the server has no NUL.
fn storable(text: &str) -> String {
    text[..text.floor_char_boundary(ERROR_BYTES)].replace('\0', "\u{fffd}")
}

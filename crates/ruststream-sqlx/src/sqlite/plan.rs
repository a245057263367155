//! A group of operations as one transaction: few texts to run, and what their answers mean.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt};
use ruststream::message::HeaderMap;
use ruststream::transport::DeadLetter;
use sqlx::encode::Encode;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::types::Type;
use sqlx::{Arguments, AssertSqlSafe, Either, Executor, Row};

use tokio::sync::Notify;
use tokio::time::timeout;

use super::{schema, statements};
use crate::clock::to_millis;
use crate::operation::{Administer, Claim, ClaimedRow, Decoded, Needs, NewRow, Part, PruneBatch, RetryRow};

/// Statements in one text. The thread of the connection runs a text in one go; a longer group is several texts.
const STATEMENTS: usize = 24;

/// Bytes bound in one text.
const BYTES: usize = 16 * 1024 * 1024;

/// The longest error text that a dead letter keeps.
const ERROR_BYTES: usize = 64 * 1024;

/// How many messages are given to groups at a time.
const SHARE_BATCH: i64 = 256;

/// What a statement's answer is for.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Its answer tells nothing.
    Silent,
    /// The number of rows it changed, for this operation.
    Affected(usize),
    /// Claimed rows, for this operation.
    Rows(usize),
    /// Ids, for this operation.
    Ids(usize),
}

/// What an operation got back.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// For each of its statements that tells, in order.
    pub(super) affected: Vec<u64>,
    pub(super) claimed: Decoded,
    pub(super) ids: Vec<i64>,
}

#[derive(Default)]
struct Text {
    sql: String,
    arguments: SqliteArguments,
    steps: Vec<Step>,
    bytes: usize,
}

/// A transaction to be.
pub(super) struct Plan {
    texts: Vec<Text>,
    now: i64,
    error: Option<sqlx::Error>,
}

impl Plan {
    pub(super) fn new(now: i64) -> Self {
        Self {
            texts: vec![Text::default()],
            now,
            error: None,
        }
    }

    pub(super) fn claim(&mut self, operation: usize, claim: &Claim) {
        let (room, now) = (i64::try_from(claim.room).unwrap_or(i64::MAX), self.now);
        if let Some(queue) = &claim.shared {
            for text in [statements::SHARE, statements::SHARED] {
                self.statement(text, Step::Silent);
                self.bind(&**queue).bind(now).bind(SHARE_BATCH);
            }
        }
        let (rows, lease) = statements::claim(claim.choice);
        self.statement(rows, Step::Rows(operation));
        self.chosen(claim, room);
        self.statement(lease, Step::Silent);
        self.bind(now + claim.lease).bind(claim.token);
        self.chosen(claim, room);
    }

    /// The values by which a claim finds its rows.
    fn chosen(&mut self, claim: &Claim, room: i64) {
        let now = self.now;
        self.bind(&*claim.queue).bind(now).bind(room);
        if claim.choice.priority {
            self.bind(&*claim.queue).bind(now).bind(room).bind(room);
        }
    }

    pub(super) fn part(&mut self, operation: usize, part: &Part) {
        let step = Step::Affected(operation);
        match part {
            Part::Ack {
                token,
                ids,
                dense: true,
            } if ids.len() > 1 => {
                self.statement(statements::ACK_RANGE, step);
                self.bind(ids[0]).bind(ids[ids.len() - 1]).bind(*token);
            }
            Part::Ack { token, ids, .. } if ids.len() == 1 => {
                self.statement(statements::ACK_RANGE, step);
                self.bind(ids[0]).bind(ids[0]).bind(*token);
            }
            Part::Ack { token, ids, .. } => {
                self.statement(statements::ACK_LIST, step);
                self.bind(json(ids)).bind(*token);
            }
            Part::Keep { token, ids, keep } => self.keep(step, ids, *token, *keep),
            Part::Answer(answered) => {
                let (id, token) = (answered.id, answered.token);
                for reply in answered.replies.iter() {
                    self.statement(statements::REPLY, Step::Silent);
                    self.row(reply);
                    self.extras(reply);
                    self.bind(id).bind(token);
                }
                if let Some(keep) = answered.keep {
                    self.keep(step, &[id], token, keep);
                } else {
                    self.statement(statements::ACK_RANGE, step);
                    self.bind(id).bind(id).bind(token);
                }
            }
            Part::Defer(rows) => {
                let list = self.later(rows);
                self.statement(statements::DEFER, step);
                self.bind(statements::FREE).bind(list);
            }
            Part::Release { token, ids } => {
                self.statement(statements::RELEASE, step);
                let now = self.now;
                self.bind(now).bind(statements::FREE).bind(json(ids)).bind(*token);
            }
            Part::Return { id, token, attempts } => {
                self.statement(statements::RETURN, step);
                let now = self.now;
                self.bind(now).bind(statements::FREE).bind(i64::from(*attempts));
                self.bind(*id).bind(*token);
            }
            Part::Retry(rows) => {
                let list = self.later(rows);
                self.statement(statements::RETRY, step);
                self.bind(statements::FREE).bind(list);
            }
            Part::Dead { id, token, letter } => self.dead(step, *id, *token, letter),
        }
    }

    /// Rows that are due later, as a list.
    fn later(&self, rows: &[RetryRow]) -> String {
        let now = self.now;
        json_of(rows, |RetryRow { id, token, after }, text| {
            let _ = write!(text, "[{id},{token},{}]", now + after);
        })
    }

    fn keep(&mut self, step: Step, ids: &[i64], token: i64, keep: i64) {
        let now = self.now;
        self.statement(statements::KEEP, step);
        self.bind(statements::FREE).bind(now).bind(now + keep);
        self.bind(json(ids)).bind(token);
    }

    fn dead(&mut self, step: Step, id: i64, token: i64, letter: &DeadLetter) {
        let error = &letter.error[..letter.error.floor_char_boundary(ERROR_BYTES)];
        self.statement(statements::DEAD, step);
        self.bind(statements::FREE)
            .bind(letter.reason.as_str())
            .bind(error)
            .bind(i64::from(letter.attempts))
            .bind(&*letter.source)
            .bind(to_millis(letter.at))
            .bind(id)
            .bind(token);
    }

    /// Stores rows, in order, each of an operation. Those with a unique key tell whether they are new.
    pub(super) fn insert(&mut self, rows: &[(usize, &NewRow)]) {
        let mut rest = rows;
        while let Some((operation, first)) = rest.first() {
            if first.extras.is_some() {
                let step = if first.unique().is_some() {
                    Step::Affected(*operation)
                } else {
                    Step::Silent
                };
                self.statement(statements::INSERT_MORE, step);
                self.row(first);
                self.extras(first);
                rest = &rest[1..];
                continue;
            }
            let alike = rest.iter().take_while(|(_, row)| row.extras.is_none()).count();
            let size = statements::insert_size(alike);
            let (group, tail) = rest.split_at(size);
            rest = tail;
            let text = self.room_for_one();
            statements::insert(size, &mut text.sql);
            text.steps.push(Step::Silent);
            text.arguments.reserve(6 * size, 0);
            for (_, row) in group {
                self.row(row);
            }
        }
    }

    /// The values that all rows have.
    fn row(&mut self, row: &NewRow) {
        let now = self.now;
        let run_at = row.extras.as_ref().and_then(|extras| extras.run_at);
        self.bind(&*row.queue)
            .bind(run_at.unwrap_or(now + row.delay))
            .bind(now)
            .bind(row.key.as_deref())
            .bind(row.headers.as_deref())
            .bind(&row.payload[..]);
        if let Some(text) = self.texts.last_mut() {
            text.bytes += row.payload.len();
        }
    }

    /// The values that few rows have.
    fn extras(&mut self, row: &NewRow) {
        let priority = row.extras.as_ref().map_or(0, |extras| extras.priority);
        self.bind(i64::from(priority)).bind(row.unique());
    }

    /// Makes ready what a subscription needs.
    pub(super) fn needs(&mut self, needs: &Needs) {
        if let Some((queue, group, place)) = &needs.group {
            self.statement(statements::JOIN_GROUP, Step::Silent);
            self.bind(&**queue).bind(&**group).bind(&**place);
        }
        for (needed, index) in [
            (needs.choice.fifo, schema::FIFO_INDEX),
            (needs.choice.priority, schema::PRIORITY_INDEX),
        ] {
            if needed {
                self.statement(index, Step::Silent);
            }
        }
    }

    /// Deletes what was kept long enough.
    pub(super) fn prune(&mut self, operation: usize, batch: &PruneBatch) {
        let now = self.now;
        self.statement(statements::PRUNE, Step::Affected(operation));
        self.bind(&*batch.queue).bind(now).bind(batch.limit);
        if let Some(keep) = batch.keep_dead {
            self.statement(statements::PRUNE_DEAD, Step::Affected(operation));
            self.bind(&*batch.queue).bind(now - keep).bind(batch.limit);
        }
    }

    pub(super) fn renew(&mut self, operation: usize, rows: &[(i64, i64)], lease: i64) {
        self.statement(statements::RENEW, Step::Affected(operation));
        self.bind(self.now + lease).bind(pairs(rows));
    }

    pub(super) fn administer(&mut self, operation: usize, what: &Administer) {
        let step = Step::Ids(operation);
        match what {
            Administer::Replay { id, kept } => {
                let replay = if *kept {
                    statements::REPLAY_KEPT
                } else {
                    statements::REPLAY
                };
                self.statement(replay, step);
                self.bind(self.now).bind(statements::FREE).bind(*id);
            }
            Administer::ReplayQueue { queue, after, limit } => {
                self.statement(statements::REPLAY_QUEUE, step);
                self.bind(self.now).bind(statements::FREE);
                self.bind(&**queue).bind(*after).bind(*limit);
            }
            Administer::Purge { id } => {
                self.statement(statements::PURGE, step);
                self.bind(*id);
            }
            Administer::PurgeQueue { queue, after, limit } => {
                self.statement(statements::PURGE_QUEUE, step);
                self.bind(&**queue).bind(*after).bind(*limit);
            }
        }
    }

    fn statement(&mut self, sql: &'static str, step: Step) {
        let text = self.room_for_one();
        text.sql.push_str(sql);
        text.steps.push(step);
    }

    fn room_for_one(&mut self) -> &mut Text {
        let full = self
            .texts
            .last()
            .is_none_or(|text| text.steps.len() >= STATEMENTS || text.bytes >= BYTES);
        if full {
            self.texts.push(Text::default());
        }
        let last = self.texts.len() - 1;
        &mut self.texts[last]
    }

    fn bind<'v, T: Encode<'v, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        let last = self.texts.len() - 1;
        if let Err(error) = self.texts[last].arguments.add(value) {
            self.error.get_or_insert(sqlx::Error::Encode(error));
        }
        self
    }

    /// Makes it a transaction. One statement alone is one by itself.
    pub(super) fn finish(&mut self) {
        if let [text] = &self.texts[..]
            && text.steps.len() <= 1
        {
            return;
        }
        if let Some(first) = self.texts.first_mut() {
            first.sql.insert_str(0, statements::BEGIN);
            first.steps.insert(0, Step::Silent);
        }
        if let Some(last) = self.texts.last_mut() {
            last.sql.push_str(statements::COMMIT);
            last.steps.push(Step::Silent);
        }
    }

    /// Runs it. After an error the transaction may still be open.
    pub(super) async fn run(
        &self,
        connection: &mut SqliteConnection,
        commits: &Notify,
        answers: &mut [Answer],
    ) -> Result<(), sqlx::Error> {
        if let Some(error) = &self.error {
            return Err(sqlx::Error::Protocol(error.to_string()));
        }
        for (position, text) in self.texts.iter().enumerate() {
            let query = sqlx::query_with(AssertSqlSafe(text.sql.clone()), text.arguments.clone());
            let mut stream = connection.fetch_many(query);
            // One statement alone has one answer, and a text that is not the last has no commit: nothing to sleep through.
            let mut first = if text.steps.len() > 1 && position + 1 == self.texts.len() {
                start_quietly(&mut stream, commits).await
            } else {
                None
            };
            // Done with the last answer: waiting for the end of the stream would wake the task once more.
            for step in &text.steps {
                loop {
                    let item = match first.take() {
                        Some(item) => Some(item?),
                        None => stream.try_next().await?,
                    };
                    match (step, item) {
                        (Step::Rows(operation), Some(Either::Right(row))) => take_row(&row, &mut answers[*operation])?,
                        (Step::Ids(operation), Some(Either::Right(row))) => {
                            answers[*operation].ids.push(row.try_get(0)?);
                        }
                        (_, Some(Either::Right(_))) => {}
                        (Step::Affected(operation), Some(Either::Left(result))) => {
                            answers[*operation].affected.push(result.rows_affected());
                            break;
                        }
                        (_, Some(Either::Left(_))) => break,
                        (_, None) => return Err(sqlx::Error::WorkerCrashed),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Starts a text, and sleeps through its answers until its commit begins.
///
/// They come from another thread, slower than they are read: read as they come, each would wake the task once, and waking
/// costs more than the row. So the first poll, which sends the text, leaves no waker behind, and the commit hook wakes the
/// task when all but the last are there. A text that fails has no commit: a millisecond later the answers are read as they come.
async fn start_quietly<S: Stream + Unpin>(stream: &mut S, commits: &Notify) -> Option<S::Item> {
    // One that an earlier text left behind.
    let _ = commits.notified().now_or_never();
    let first = stream.next().now_or_never();
    if first.is_none() {
        let _ = timeout(Duration::from_millis(1), commits.notified()).await;
    }
    first.flatten()
}

fn take_row(row: &SqliteRow, answer: &mut Answer) -> Result<(), sqlx::Error> {
    // Unchecked: people insert by hand, and a payload of text is as good as one of bytes.
    let attempt: i64 = row.try_get_unchecked(1)?;
    let block: Option<Vec<u8>> = row.try_get_unchecked(4)?;
    let claimed = ClaimedRow {
        id: row.try_get_unchecked(0)?,
        attempt: u32::try_from(attempt.saturating_add(1)).unwrap_or(u32::MAX),
        published_at: row.try_get_unchecked(2)?,
        key: row.try_get_unchecked(3)?,
        headers: HeaderMap::new(),
        raw: None,
        payload: row.try_get_unchecked(5)?,
        unfinished: row.try_get_unchecked::<i64, _>(6)? != statements::FREE,
    };
    answer.claimed.take(claimed, block.as_deref());
    Ok(())
}

fn json(ids: &[i64]) -> String {
    json_of(ids, |id, text| {
        let _ = write!(text, "{id}");
    })
}

/// Ids with their tokens.
pub(super) fn pairs(rows: &[(i64, i64)]) -> String {
    json_of(rows, |(id, token), text| {
        let _ = write!(text, "[{id},{token}]");
    })
}

fn json_of<T>(items: &[T], mut write: impl FnMut(&T, &mut String)) -> String {
    let mut text = String::with_capacity(2 + 12 * items.len());
    text.push('[');
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        write(item, &mut text);
    }
    text.push(']');
    text
}

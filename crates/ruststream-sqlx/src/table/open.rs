//! A table that a subscription reads.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ruststream::message::HeaderMap;
use tokio::sync::{oneshot, watch};

use super::layout::Layout;
use super::spec::{Decode, TableSpec};
use super::statements::Scope;
use super::work::{End, Held, TableAnswer, TablePart, TableRow, TableWork};
use crate::engine::Engine;
use crate::error::Failure;
use crate::lease::random_token;
use crate::operation::{Choice, Claimed, ClaimedRow, LostRow, Operation, Part};

/// How often a waiting subscription looks for rows, give or take a fifth.
const POLL: Duration = Duration::from_millis(250);

/// A table that is to be read.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) spec: TableSpec,
    pub(crate) decode: Decode,
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wanted").field(&self.spec.table).finish()
    }
}

/// A table that is read.
pub(crate) struct OpenTable {
    layout: Arc<Layout>,
    scope: Scope,
    decode: Decode,
    /// The ids of rows in hand that are no numbers, by numbers of this process.
    ids: Mutex<HashMap<i64, String>>,
    next: AtomicI64,
}

impl fmt::Debug for OpenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTable")
            .field("table", &self.layout.table)
            .finish_non_exhaustive()
    }
}

/// Finds the columns of a table.
pub(super) async fn layout(engine: &Engine, spec: TableSpec) -> Result<Layout, Failure> {
    match engine
        .ask(|reply| Operation::Table(TableWork::Open(spec), reply))
        .await?
    {
        TableAnswer::Opened(layout) => Ok(*layout),
        _ => Err(engine.died()),
    }
}

/// The tables that names lead to.
pub(crate) async fn routed(
    engine: &Engine,
    tables: &[(String, Wanted)],
) -> Result<HashMap<String, Arc<Layout>>, Failure> {
    let mut routes = HashMap::with_capacity(tables.len());
    for (name, wanted) in tables {
        routes.insert(name.clone(), Arc::new(layout(engine, wanted.spec).await?));
    }
    Ok(routes)
}

impl OpenTable {
    pub(crate) async fn open(
        engine: &Engine,
        wanted: &Wanted,
        name: &str,
        choice: Choice,
    ) -> Result<Arc<Self>, Failure> {
        let layout = layout(engine, wanted.spec).await?;
        let group = layout.group.is_some().then(|| name.to_owned());
        Ok(Arc::new(Self {
            layout: Arc::new(layout),
            scope: Scope { group, choice },
            decode: wanted.decode,
            ids: Mutex::default(),
            next: AtomicI64::new(1),
        }))
    }

    /// The number of an id, in this process.
    fn number(&self, id: String) -> i64 {
        if let Ok(number) = id.parse::<i64>()
            && number.to_string() == id
            && self.layout.id.kind.contains("int")
        {
            return number;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, id);
        number
    }

    fn id(&self, number: i64) -> String {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.get(&number).cloned().unwrap_or_else(|| number.to_string())
    }

    /// Forgets ids that are settled.
    pub(crate) fn forget(&self, numbers: impl Iterator<Item = i64>) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        for number in numbers {
            ids.remove(&number);
        }
    }

    fn held(&self, numbers: &[i64], token: i64) -> Held {
        Held {
            ids: numbers.iter().map(|number| self.id(*number)).collect(),
            token,
        }
    }

    fn take_in(&self, row: TableRow) -> ClaimedRow {
        let block = row.headers.as_deref().map(HeaderMap::from_block);
        ClaimedRow {
            id: self.number(row.id),
            attempt: row.attempt,
            unfinished: row.attempt > 1,
            published_at: row.due,
            key: row.key,
            // What others wrote there are no headers.
            headers: block.and_then(Result::ok).unwrap_or_default(),
            payload: row.payload,
            raw: Some((row.raw.into(), self.decode)),
        }
    }

    /// What settles parts.
    pub(crate) fn settlement(&self, parts: &[Part]) -> TableWork {
        let mut ends = Vec::new();
        for part in parts {
            let mut add = |ids: &[i64], token, end| {
                let held = self.held(ids, token);
                ends.push(TablePart { held, end });
            };
            match part {
                Part::Ack { token, ids, .. } | Part::Keep { token, ids, .. } => add(ids, *token, End::Ack),
                Part::Answer(row) => add(&[row.id], row.token, End::Ack),
                Part::Release { token, ids } => add(ids, *token, End::Release),
                Part::Return { id, token, attempts } => add(&[*id], *token, End::Return(*attempts)),
                Part::Retry(rows) | Part::Defer(rows) => {
                    for row in rows {
                        add(&[row.id], row.token, End::Retry(row.after));
                    }
                }
                Part::Dead { id, token, letter } => {
                    let reason = format!("{}: {}", letter.reason, letter.error);
                    add(&[*id], *token, End::Dead(reason));
                }
            }
        }
        TableWork::Settle(Arc::clone(&self.layout), ends)
    }

    /// Extends leases; answers those that are lost.
    pub(crate) async fn renew(
        &self,
        engine: &Engine,
        rows: Vec<(i64, i64)>,
        lease: i64,
    ) -> Result<Vec<LostRow>, Failure> {
        let mut held: Vec<Held> = Vec::new();
        for (number, token) in &rows {
            let id = self.id(*number);
            match held.iter_mut().find(|held| held.token == *token) {
                Some(held) => held.ids.push(id),
                None => held.push(Held {
                    ids: vec![id],
                    token: *token,
                }),
            }
        }
        let work = TableWork::Renew(Arc::clone(&self.layout), held, lease);
        let TableAnswer::Lost(lost) = engine.ask(|reply| Operation::Table(work, reply)).await? else {
            return Err(engine.died());
        };
        let lost = rows.into_iter().filter(|(number, token)| {
            let id = self.id(*number);
            lost.iter().any(|(gone, its)| *gone == id && its == token)
        });
        Ok(lost.map(|(id, token)| LostRow { id, token, gone: false }).collect())
    }

    /// Deletes what was kept long enough.
    pub(crate) fn prune(&self, keep: Option<i64>, keep_dead: Option<i64>, limit: i64) -> TableWork {
        TableWork::Prune {
            layout: Arc::clone(&self.layout),
            scope: self.scope.clone(),
            keep,
            keep_dead,
            limit,
        }
    }
}

/// Claims the rows of a table, waiting for them.
pub(crate) struct TableReader {
    table: Arc<OpenTable>,
    news: watch::Receiver<u64>,
    /// A claim on its way, with its token.
    pending: Option<(i64, oneshot::Receiver<Result<TableAnswer, Failure>>)>,
}

impl TableReader {
    pub(crate) fn new(engine: &Engine, table: Arc<OpenTable>) -> Self {
        Self {
            table,
            news: engine.table_news(),
            pending: None,
        }
    }

    /// # Cancel safety
    ///
    /// A call dropped before it completes leaves its claim to the next.
    pub(crate) async fn claim(&mut self, engine: &Engine, room: usize, lease: i64) -> Result<Claimed, Failure> {
        loop {
            self.news.borrow_and_update();
            if self.pending.is_none() {
                let token = random_token();
                let work = TableWork::Claim {
                    layout: Arc::clone(&self.table.layout),
                    scope: self.table.scope.clone(),
                    room,
                    lease,
                    token,
                };
                let answer = engine.send(|reply| Operation::Table(work, reply)).await?;
                self.pending = Some((token, answer));
            }
            let Some((token, pending)) = &mut self.pending else {
                continue;
            };
            let token = *token;
            let answer = pending.await.unwrap_or_else(|_| Err(engine.died()));
            self.pending = None;
            match answer? {
                TableAnswer::Claimed(rows) => return Ok(self.take_in(token, rows)),
                TableAnswer::Nothing(due) => self.wait(due).await,
                _ => return Err(engine.died()),
            }
        }
    }

    async fn wait(&mut self, due: Option<i64>) {
        let poll = POLL.mul_f64(0.8 + fastrand::f64() * 0.4);
        // What is due already is someone's, or waits for others of its key.
        let due = due.map(|due| Duration::from_millis(due.max(20).unsigned_abs() + 1));
        let pause = due.map_or(poll, |due| due.min(poll));
        tokio::select! {
            _ = self.news.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    fn take_in(&self, token: i64, mut rows: Vec<TableRow>) -> Claimed {
        // Answered in any order.
        let by_priority = self.table.scope.choice.priority;
        rows.sort_by_key(|row| (if by_priority { -row.priority } else { 0 }, row.due));
        let rows = rows.into_iter().map(|row| self.table.take_in(row)).collect();
        Claimed { token, rows }
    }

    /// What a claim brought that no one waited for.
    pub(crate) fn leftover(&mut self) -> Option<Claimed> {
        let (token, mut pending) = self.pending.take()?;
        match pending.try_recv() {
            Ok(Ok(TableAnswer::Claimed(rows))) => Some(self.take_in(token, rows)),
            _ => None,
        }
    }

    /// The same, once it has come.
    pub(crate) async fn finish(&mut self) -> Option<Claimed> {
        let (token, pending) = self.pending.take()?;
        match pending.await {
            Ok(Ok(TableAnswer::Claimed(rows))) => Some(self.take_in(token, rows)),
            _ => None,
        }
    }
}

/// What gives rows back that no one takes any more.
pub(crate) fn give_back(work: &TableWork, answer: &TableAnswer) -> Option<TableWork> {
    let (TableWork::Claim { layout, token, .. }, TableAnswer::Claimed(rows)) = (work, answer) else {
        return None;
    };
    let held = Held {
        ids: rows.iter().map(|row| row.id.clone()).collect(),
        token: *token,
    };
    let end = End::Release;
    Some(TableWork::Settle(Arc::clone(layout), vec![TablePart { held, end }]))
}

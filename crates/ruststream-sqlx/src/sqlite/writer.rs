//! The one writer of a connection: it takes all that waits and runs it as one transaction.

use std::sync::Arc;

use ruststream::transport::TransportError;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::Settings;
use super::database::Database;
use super::plan::{Answer, Plan};
use super::waiting::Waiting;
use crate::clock::from_millis;
use crate::engine::{Counters, give_way};
use crate::error::{Failure, Trouble};
use crate::operation::{
    Administration, Claim, Claimed, Insert, Inserted, Letters, NewRow, Operation, Part, Pruning, Renewal, Reply,
    SettleAnswer, Settlement, answer_pruning,
};

/// The most operations in one transaction.
const GROUP: usize = 256;

/// The most payload bytes that one transaction inserts, beyond its first operation.
const GROUP_BYTES: usize = 32 * 1024 * 1024;

/// In how many milliseconds to look again for a row that waits for others of its key.
const IN_ORDER: i64 = 100;

pub(super) struct Writer {
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    receiver: mpsc::Receiver<Operation>,
    database: Database,
    waiting: Waiting,
    /// For the next turn: what was left for later, and the writer's own.
    backlog: Vec<Operation>,
}

impl Writer {
    pub(super) fn new(settings: Arc<Settings>, counters: Arc<Counters>, receiver: mpsc::Receiver<Operation>) -> Self {
        Self {
            waiting: Waiting::new(settings.poll_interval),
            database: Database::new(Arc::clone(&settings), Arc::clone(&counters)),
            settings,
            counters,
            receiver,
            backlog: Vec::new(),
        }
    }

    /// Works until its channel ends; `first` is a connection that was just opened.
    pub(super) async fn run(mut self, first: Option<SqliteConnection>) {
        if let Some(connection) = first
            && let Err(failure) = self.database.install(connection).await
        {
            // The first operation opens another, or says why it cannot.
            self.lose(&failure);
        }
        let mut arrived = Vec::new();
        let closing = loop {
            if self.backlog.is_empty() {
                let pause = self.waiting.pause(self.settings.clock.now());
                tokio::select! {
                    biased;
                    count = self.receiver.recv_many(&mut arrived, GROUP) => if count == 0 { break None },
                    () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {}
                }
            } else {
                arrived.append(&mut self.backlog);
            }
            // Tasks that the last group's answers woke are about to run: a turn for them makes this group larger.
            give_way().await;
            while arrived.len() < GROUP
                && let Ok(operation) = self.receiver.try_recv()
            {
                arrived.push(operation);
            }
            if let Some(reply) = self.round(&mut arrived).await {
                break Some(reply);
            }
        };
        while !self.backlog.is_empty() {
            arrived.append(&mut self.backlog);
            let _ = self.round(&mut arrived).await;
        }
        self.database.close().await;
        if let Some(reply) = closing {
            let _ = reply.send(Ok(()));
        }
    }

    /// Runs what arrived, and the waiting claims that may find something now. Answers the reply of a close.
    async fn round(&mut self, arrived: &mut Vec<Operation>) -> Option<Reply<()>> {
        let mut group = Vec::with_capacity(arrived.len());
        let mut cancelled = Vec::new();
        let mut pings = Vec::new();
        let mut closing = None;
        let mut bytes = 0;
        let mut operations = arrived.drain(..);
        for operation in operations.by_ref() {
            match operation {
                Operation::Cancel { subscription, reply } => {
                    self.waiting.cancel(subscription);
                    group.retain(
                        |known| !matches!(known, Operation::Claim(claim) if claim.subscription == subscription),
                    );
                    cancelled.push(reply);
                }
                Operation::Ping { reply } => pings.push(reply),
                Operation::Close { reply } => {
                    closing = Some(reply);
                    break;
                }
                Operation::Insert(insert) => {
                    bytes += insert.rows.iter().map(|row| row.payload.len()).sum::<usize>();
                    group.push(Operation::Insert(insert));
                    if bytes > GROUP_BYTES {
                        break;
                    }
                }
                #[cfg(test)]
                Operation::Panic => panic!("a test asked for it"),
                operation => group.push(operation),
            }
        }
        if closing.is_none() {
            self.backlog.extend(operations);
        } else {
            drop(operations);
        }
        let mut claims = Vec::new();
        if let Err(failure) = self.look_around(&mut claims).await {
            self.lose(&failure);
        }
        self.wake_for(&group, &mut claims);
        group.extend(claims.into_iter().map(Operation::Claim));
        if !group.is_empty() {
            self.turn(group).await;
        }
        for reply in cancelled {
            let _ = reply.send(Ok(()));
        }
        if !pings.is_empty() {
            self.ping(pings).await;
        }
        closing
    }

    /// Takes the waiting claims for which a row is due, or all of them where another process wrote.
    async fn look_around(&mut self, claims: &mut Vec<Claim>) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.waiting.take_due(self.settings.clock.now(), claims);
        if self.waiting.poll_is_due() {
            Counters::count(&self.counters.polls);
            if self.database.was_written().await? {
                self.waiting.take_all(claims);
            }
        }
        Ok(())
    }

    /// Takes the waiting claims for which this group makes rows ready: they run in its transaction.
    fn wake_for(&mut self, group: &[Operation], claims: &mut Vec<Claim>) {
        if self.waiting.is_empty() {
            return;
        }
        let now = self.settings.clock.now();
        for operation in group {
            match operation {
                Operation::Insert(insert) => {
                    for row in &insert.rows {
                        if row.is_immediate() {
                            self.waiting.take_for(&row.queue, 1, claims);
                        } else {
                            let run_at = row.extras.as_ref().and_then(|extras| extras.run_at);
                            self.waiting.note(&row.queue, run_at.unwrap_or(now + row.delay));
                        }
                    }
                }
                Operation::Settle(settlement) => {
                    for part in &settlement.parts {
                        if let Part::Answer(answered) = part {
                            for reply in answered.replies.iter() {
                                self.waiting.take_for(&reply.queue, 1, claims);
                            }
                        }
                        match part.due_after() {
                            None if settlement.frees => self.waiting.take_for(&settlement.queue, part.len(), claims),
                            Some(0) => self.waiting.take_for(&settlement.queue, part.len(), claims),
                            Some(after) => self.waiting.note(&settlement.queue, now + after),
                            None => {}
                        }
                    }
                }
                Operation::Administer(_) => self.waiting.take_all(claims),
                _ => {}
            }
        }
    }

    async fn turn(&mut self, group: Vec<Operation>) {
        if let Err(failure) = self.database.open().await {
            return self.fail(group, &failure);
        }
        let mut answers = Vec::new();
        let done = self
            .database
            .transact(group.len(), &mut answers, |now| plan_of(&group, now))
            .await;
        match done {
            Ok(()) => {
                let mut hungry = Vec::new();
                for (operation, answer) in group.into_iter().zip(answers) {
                    self.answer(operation, answer, &mut hungry).await;
                }
                self.let_wait(hungry).await;
            }
            Err(Trouble::Refused(failure)) => self.singly(group, failure).await,
            Err(Trouble::Contended(failure) | Trouble::Lost(failure)) => self.fail(group, &failure),
        }
    }

    /// One of a group was refused: each is tried by itself.
    async fn singly(&mut self, group: Vec<Operation>, failure: Failure) {
        if let [_] = &group[..] {
            for operation in group {
                self.in_pieces(operation, failure.clone()).await;
            }
            return;
        }
        let mut hungry = Vec::new();
        let mut rest = group.into_iter();
        while let Some(operation) = rest.next() {
            let mut answers = Vec::new();
            let done = self
                .database
                .transact(1, &mut answers, |now| plan_of(std::slice::from_ref(&operation), now))
                .await;
            match done {
                Ok(()) => {
                    let answer = answers.pop().unwrap_or_default();
                    self.answer(operation, answer, &mut hungry).await;
                }
                Err(Trouble::Refused(failure)) => self.in_pieces(operation, failure).await,
                Err(Trouble::Contended(failure) | Trouble::Lost(failure)) => {
                    let mut left = vec![operation];
                    left.extend(rest);
                    left.extend(hungry.into_iter().map(Operation::Claim));
                    return self.fail(left, &failure);
                }
            }
        }
        self.let_wait(hungry).await;
    }

    /// An operation was refused: where it has several pieces, each is tried by itself.
    async fn in_pieces(&mut self, operation: Operation, failure: Failure) {
        match operation {
            Operation::Settle(settlement) => {
                let mut answer = SettleAnswer::default();
                let single = settlement.parts.len() == 1;
                for part in &settlement.parts {
                    let mut answers = Vec::new();
                    let done = if single {
                        Err(failure.clone())
                    } else {
                        self.database
                            .transact(1, &mut answers, |now| {
                                let mut plan = Plan::new(now);
                                plan.part(0, part);
                                plan
                            })
                            .await
                            .map_err(Trouble::into_failure)
                    };
                    match done {
                        Ok(()) => answer.stale += stale(std::slice::from_ref(part), &answers),
                        Err(failure) => {
                            answer.failed.extend(part.rows());
                            answer.failure.get_or_insert(failure);
                        }
                    }
                }
                match settlement.reply {
                    Some(reply) => drop(reply.send(Ok(answer))),
                    None => report_lost_settlement(&settlement.queue, answer.failure.as_ref()),
                }
            }
            Operation::Insert(Insert { rows, reply }) => {
                let mut inserted = Inserted::default();
                let single = rows.len() == 1;
                for (index, row) in rows.iter().enumerate() {
                    let done = if single {
                        Err(failure.clone())
                    } else {
                        let mut answers = Vec::new();
                        let stored = self
                            .database
                            .transact(1, &mut answers, |now| {
                                let mut plan = Plan::new(now);
                                plan.insert(&[(0, row)]);
                                plan
                            })
                            .await;
                        if answers.iter().any(|answer| answer.affected.contains(&0)) {
                            inserted.duplicates.push(index);
                        }
                        stored.map_err(Trouble::into_failure)
                    };
                    if let Err(failure) = done {
                        inserted.failed.push((index, failure));
                    }
                }
                let _ = reply.send(Ok(inserted));
            }
            operation => refuse(operation, failure),
        }
    }

    async fn answer(&mut self, operation: Operation, answer: Answer, hungry: &mut Vec<Claim>) {
        match operation {
            Operation::Claim(claim) => self.hand_over(claim, answer, hungry),
            Operation::Settle(settlement) => {
                let stale = stale(&settlement.parts, std::slice::from_ref(&answer));
                if let Some(reply) = settlement.reply {
                    let _ = reply.send(Ok(SettleAnswer {
                        stale,
                        ..SettleAnswer::default()
                    }));
                }
            }
            Operation::Insert(insert) => {
                let inserted = Inserted {
                    duplicates: duplicates(&insert.rows, &answer.affected),
                    ..Inserted::default()
                };
                let _ = insert.reply.send(Ok(inserted));
            }
            Operation::Open(opening) => drop(opening.reply.send(Ok(()))),
            Operation::Prune(pruning) => self.pruned(pruning, &answer.affected),
            // Other processes look by themselves.
            Operation::Tell { .. } => {}
            Operation::Renew(renewal) => {
                let renewed = answer.affected.first().copied().unwrap_or(0);
                let lost = if renewed as usize >= renewal.rows.len() {
                    Ok(Vec::new())
                } else {
                    self.database.lost_rows(&renewal.rows).await
                };
                let _ = renewal.reply.send(lost);
            }
            Operation::Administer(Administration { reply, .. }) => drop(reply.send(Ok(answer.ids))),
            Operation::Cancel { reply, .. } | Operation::Ping { reply } | Operation::Close { reply } => {
                let _ = reply.send(Ok(()));
            }
            // The others'.
            Operation::Letters(_) | Operation::Count { .. } | Operation::Table(..) => {}
            #[cfg(test)]
            Operation::Panic => {}
        }
    }

    fn hand_over(&mut self, claim: Claim, answer: Answer, hungry: &mut Vec<Claim>) {
        Counters::count(&self.counters.claims);
        let token = claim.token;
        let mut claimed = answer.claimed;
        let dead = claimed.give_up(&claim.queue, token, from_millis(self.settings.clock.now()));
        if !dead.is_empty() {
            self.settle_later(&claim.queue, dead);
        }
        if claimed.rows.is_empty() {
            Counters::count(&self.counters.empty_claims);
            hungry.push(claim);
            return;
        }
        let claimed = Claimed {
            token,
            rows: claimed.rows,
        };
        // No one takes it any more: the rows go back at once.
        if let Err(Ok(claimed)) = claim.reply.send(Ok(claimed)) {
            let ids = claimed.rows.iter().map(|row| row.id).collect();
            self.settle_later(&claim.queue, vec![Part::Release { token, ids }]);
        }
    }

    /// A batch that was full has another one behind it.
    fn pruned(&mut self, pruning: Pruning, deleted: &[u64]) {
        let limit = pruning.batch.limit.unsigned_abs();
        if deleted.iter().any(|deleted| *deleted >= limit) {
            self.backlog.push(Operation::Prune(pruning));
            return;
        }
        answer_pruning(&pruning.batch.queue, Ok(deleted.iter().sum()), pruning.reply);
    }

    fn settle_later(&mut self, queue: &Arc<str>, parts: Vec<Part>) {
        self.backlog.push(Operation::Settle(Settlement {
            queue: Arc::clone(queue),
            parts,
            frees: false,
            reply: None,
        }));
    }

    /// Lets claims wait that found nothing, each until the first row of its queue is due.
    async fn let_wait(&mut self, hungry: Vec<Claim>) {
        let mut hungry = hungry.into_iter();
        while let Some(claim) = hungry.next() {
            match self.next_due(&claim).await {
                Ok(next_due) => self.waiting.add(claim, next_due),
                Err(failure) => {
                    let mut left = vec![Operation::Claim(claim)];
                    left.extend(hungry.map(Operation::Claim));
                    self.lose(&failure);
                    return self.fail(left, &failure);
                }
            }
        }
    }

    /// When there may be something for a claim that found nothing now.
    async fn next_due(&mut self, claim: &Claim) -> Result<Option<i64>, Failure> {
        let mut due = self.database.next_due(&claim.queue).await?;
        if claim.choice.fifo {
            // What is due already waits for others of its key: this process is told when one of its own is settled.
            let soonest = self.settings.clock.now() + IN_ORDER;
            due = due.map(|due| due.max(soonest));
        }
        if let Some(shared) = &claim.shared
            && let Some(shared) = self.database.next_due(shared).await?
        {
            due = Some(due.map_or(shared, |due| due.min(shared)));
        }
        Ok(due)
    }

    fn fail(&mut self, group: Vec<Operation>, failure: &Failure) {
        for operation in group {
            refuse(operation, failure.clone());
        }
        if failure.lost {
            self.lose(failure);
        }
    }

    /// The connection is gone: whoever waits on it is told, and the next operation opens a new one.
    fn lose(&mut self, failure: &Failure) {
        self.database.let_go();
        let mut claims = Vec::new();
        self.waiting.take_all(&mut claims);
        for claim in claims {
            let _ = claim.reply.send(Err(failure.clone()));
        }
    }

    async fn ping(&mut self, pings: Vec<Reply<()>>) {
        let answered = self.database.ping().await;
        if let Err(failure) = &answered
            && failure.lost
        {
            self.lose(failure);
        }
        for reply in pings {
            let _ = reply.send(answered.clone());
        }
    }
}

/// Settles first, so that rows which become ready can be claimed; inserts next; claims last.
fn plan_of(group: &[Operation], now: i64) -> Plan {
    let mut plan = Plan::new(now);
    let mut rows: Vec<(usize, &NewRow)> = Vec::new();
    for (index, operation) in group.iter().enumerate() {
        match operation {
            Operation::Settle(Settlement { parts, .. }) => parts.iter().for_each(|part| plan.part(index, part)),
            Operation::Renew(Renewal { rows, lease, .. }) => plan.renew(index, rows, *lease),
            Operation::Administer(Administration { what, .. }) => plan.administer(index, what),
            Operation::Open(opening) => plan.needs(&opening.needs),
            Operation::Prune(pruning) => plan.prune(index, &pruning.batch),
            Operation::Insert(insert) => rows.extend(insert.rows.iter().map(|row| (index, row))),
            _ => {}
        }
    }
    plan.insert(&rows);
    for (index, operation) in group.iter().enumerate() {
        if let Operation::Claim(claim) = operation {
            plan.claim(index, claim);
        }
    }
    plan
}

/// The places of the rows whose unique key was there: of those that have one, the ones that were not stored.
fn duplicates(rows: &[NewRow], stored: &[u64]) -> Vec<usize> {
    let unique = rows.iter().enumerate().filter(|(_, row)| row.unique().is_some());
    let told = unique.zip(stored);
    told.filter(|(_, stored)| **stored == 0)
        .map(|((place, _), _)| place)
        .collect()
}

/// How many rows of these parts belonged to someone else.
fn stale(parts: &[Part], answers: &[Answer]) -> usize {
    let affected = answers.iter().flat_map(|answer| &answer.affected);
    parts
        .iter()
        .zip(affected)
        .map(|(part, affected)| part.len().saturating_sub(*affected as usize))
        .sum()
}

fn refuse(operation: Operation, failure: Failure) {
    match operation {
        Operation::Claim(claim) => drop(claim.reply.send(Err(failure))),
        Operation::Settle(Settlement { reply: Some(reply), .. }) => drop(reply.send(Err(failure))),
        Operation::Settle(Settlement { queue, .. }) => report_lost_settlement(&queue, Some(&failure)),
        Operation::Insert(insert) => drop(insert.reply.send(Err(failure))),
        Operation::Open(opening) => drop(opening.reply.send(Err(failure))),
        Operation::Prune(Pruning { batch, reply }) => answer_pruning(&batch.queue, Err(failure), reply),
        Operation::Tell { .. } => {}
        Operation::Renew(renewal) => drop(renewal.reply.send(Err(failure))),
        Operation::Administer(administration) => drop(administration.reply.send(Err(failure))),
        Operation::Cancel { reply, .. } | Operation::Ping { reply } | Operation::Close { reply } => {
            let _ = reply.send(Err(failure));
        }
        Operation::Letters(Letters { reply, .. }) => drop(reply.send(Err(failure))),
        Operation::Count { reply, .. } => drop(reply.send(Err(failure))),
        Operation::Table(_, reply) => drop(reply.send(Err(failure))),
        #[cfg(test)]
        Operation::Panic => {}
    }
}

/// What the writer wanted to give back by itself comes back when its lease ends.
fn report_lost_settlement(queue: &str, failure: Option<&Failure>) {
    if let Some(failure) = failure {
        let error = TransportError::from(failure.clone());
        tracing::warn!(queue, %error, "messages were not given back: they are delivered again when their lease ends");
    }
}

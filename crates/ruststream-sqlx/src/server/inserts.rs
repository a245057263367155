//! The task that stores messages: all that waits becomes one statement, and other processes are told of it now and then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{Base, Dialect, Link, Store, Wake};
use crate::engine::give_way;
use crate::error::Trouble;
use crate::operation::{Insert, Inserted, NewRow, Operation};

/// The most rows in one statement.
const ROWS: usize = 1_024;

/// The most bytes in one statement, beyond its first row.
const BYTES: usize = 8 * 1024 * 1024;

/// Other processes are told of a queue at once, and then at most once in this time: to tell takes a lock that all commits of
/// the database share.
const WINDOW: Duration = Duration::from_millis(10);

pub(super) struct Inserts<D: Dialect> {
    base: Arc<Base<D>>,
    link: Link<D>,
    receiver: mpsc::Receiver<Operation>,
    /// Of which queues others were told of late, and whether there was more since.
    told: HashMap<Arc<str>, Told>,
}

struct Told {
    at: Instant,
    more: bool,
}

impl<D: Dialect> Inserts<D> {
    pub(super) fn new(base: Arc<Base<D>>, receiver: mpsc::Receiver<Operation>) -> Self {
        Self {
            link: Link::new(Arc::clone(&base)),
            base,
            receiver,
            told: HashMap::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut arrived = Vec::new();
        let mut closing = None;
        while closing.is_none() {
            let window_ends = self.told.values().map(|told| told.at + WINDOW).min();
            tokio::select! {
                biased;
                count = self.receiver.recv_many(&mut arrived, ROWS) => if count == 0 { break },
                () = sleep_until(window_ends.unwrap_or_else(Instant::now)), if window_ends.is_some() => {
                    self.tell_what_is_owed().await;
                    continue;
                }
            }
            // Tasks that the last group's answers woke are about to publish: a turn for them makes this group larger.
            give_way().await;
            while arrived.len() < ROWS
                && let Ok(operation) = self.receiver.try_recv()
            {
                arrived.push(operation);
            }
            let mut inserts = Vec::with_capacity(arrived.len());
            for operation in arrived.drain(..) {
                match operation {
                    Operation::Insert(insert) => inserts.push(insert),
                    // At the end of the window that begins now.
                    Operation::Tell { queues } => self.owe(&queues),
                    Operation::Close { reply } => closing = Some(reply),
                    _ => {}
                }
            }
            self.store_all(inserts).await;
        }
        self.tell_what_is_owed().await;
        self.link.close().await;
        if let Some(reply) = closing {
            let _ = reply.send(Ok(()));
        }
    }

    /// Stores what was asked, in order, in as few statements as will do.
    async fn store_all(&mut self, mut inserts: Vec<Insert>) {
        let counts: Vec<usize> = inserts.iter().map(|insert| insert.rows.len()).collect();
        let rows: Vec<NewRow> = inserts.iter_mut().flat_map(|insert| insert.rows.drain(..)).collect();
        let mut done = Inserted::default();
        let mut start = 0;
        while start < rows.len() {
            let end = start + statement_size(&rows[start..]);
            self.store(&rows, start, end, &mut done).await;
            start = end;
        }
        let mut start = 0;
        let mut failures = done.failed.into_iter().peekable();
        let mut duplicates = done.duplicates.into_iter().peekable();
        for (insert, count) in inserts.into_iter().zip(counts) {
            let end = start + count;
            let mut its = Inserted::default();
            while let Some((position, failure)) = failures.next_if(|(position, _)| *position < end) {
                its.failed.push((position - start, failure));
            }
            while let Some(position) = duplicates.next_if(|position| *position < end) {
                its.duplicates.push(position - start);
            }
            let _ = insert.reply.send(Ok(its));
            start = end;
        }
    }

    async fn store(&mut self, rows: &[NewRow], start: usize, end: usize, done: &mut Inserted) {
        let group = &rows[start..end];
        let queues = distinct(group);
        let wake = self.whom_to_tell(&queues);
        let telling = Store {
            rows: group,
            wake: &wake,
        };
        let mut stored = self.link.run(&telling).await;
        if let Err(Trouble::Refused(_)) = stored
            && !wake.is_empty()
        {
            // No message is refused because others cannot be told of it: a listener that hangs, anyone's, fills up the
            // notifications of the whole server.
            self.owe(&wake);
            stored = self.link.run(&Store { rows: group, wake: &[] }).await;
        }
        match stored {
            Ok(duplicates) => {
                self.stored(&queues);
                done.duplicates
                    .extend(duplicates.into_iter().map(|offset| start + offset));
            }
            Err(Trouble::Refused(_)) if group.len() > 1 => {
                // One of them is at fault: the others come through by themselves.
                for (offset, row) in group.iter().enumerate() {
                    let row = std::slice::from_ref(row);
                    match self.link.run(&Store { rows: row, wake: &[] }).await {
                        Ok(duplicates) => {
                            self.stored(&distinct(row));
                            done.duplicates.extend(duplicates.iter().map(|_| start + offset));
                        }
                        Err(trouble) => done.failed.push((start + offset, trouble.into_failure())),
                    }
                }
            }
            Err(trouble) => {
                let failure = trouble.into_failure();
                done.failed
                    .extend((start..end).map(|position| (position, failure.clone())));
            }
        }
    }

    /// Tells the claims of this process.
    fn stored(&self, queues: &[(Arc<str>, usize)]) {
        for (queue, rows) in queues {
            self.base.news.tell(queue, *rows);
        }
    }

    /// Of which of these queues other processes are told at once; of the others they are told when the window ends.
    fn whom_to_tell(&mut self, queues: &[(Arc<str>, usize)]) -> Vec<Arc<str>> {
        if !self.base.dialect.tells() {
            return Vec::new();
        }
        let now = Instant::now();
        let mut wake = Vec::new();
        for (queue, _) in queues {
            match self.told.get_mut(queue) {
                Some(told) if now < told.at + WINDOW => told.more = true,
                _ => {
                    self.told.insert(Arc::clone(queue), Told { at: now, more: false });
                    wake.push(Arc::clone(queue));
                }
            }
        }
        wake
    }

    /// Others are told of these queues when the window ends.
    fn owe(&mut self, queues: &[Arc<str>]) {
        let at = Instant::now();
        for queue in queues {
            let told = self.told.entry(Arc::clone(queue));
            told.or_insert(Told { at, more: true }).more = true;
        }
    }

    async fn tell_what_is_owed(&mut self) {
        let now = Instant::now();
        let mut queues = Vec::new();
        self.told.retain(|queue, told| {
            if now < told.at + WINDOW {
                return true;
            }
            if told.more {
                queues.push(Arc::clone(queue));
                *told = Told { at: now, more: false };
            }
            told.at == now
        });
        if !queues.is_empty()
            && let Err(trouble) = self.link.run(&Wake { queues }).await
        {
            // They find it by their polls.
            let failure = trouble.into_failure();
            tracing::debug!(error = %ruststream::transport::TransportError::from(failure), "other processes were not told");
        }
    }
}

/// How many of these rows go into one statement.
fn statement_size(rows: &[NewRow]) -> usize {
    let mut bytes = 0;
    let fits = rows.iter().take(ROWS).take_while(|row| {
        let fits = bytes < BYTES;
        bytes += row.payload.len();
        fits
    });
    fits.count().max(1)
}

/// The queues of some rows, with how many there are of each.
pub(super) fn distinct<'a>(rows: impl IntoIterator<Item = &'a NewRow>) -> Vec<(Arc<str>, usize)> {
    let mut queues: Vec<(Arc<str>, usize)> = Vec::new();
    for row in rows {
        // The queue of the row before is the likely one.
        match queues.iter_mut().rev().find(|(queue, _)| *queue == row.queue) {
            Some((_, count)) => *count += 1,
            None => queues.push((Arc::clone(&row.queue), 1)),
        }
    }
    queues
}

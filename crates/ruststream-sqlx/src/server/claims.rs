//! The task that claims: it runs what is asked, and lets wait what finds nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::waiting::{Ready, Waiting};
use super::{Base, Dialect, Link, News, Peek, Share};
use crate::engine::{Counters, Outlet};
use crate::error::{Failure, Trouble};
use crate::operation::{Claim, Claimed, Decoded, Operation, Part, Settlement};

/// In how many milliseconds to look again for a row that is due and locked.
const HELD: i64 = 20;

/// The same for a row that waits for others of its key: this process is told when one of its own is settled.
const IN_ORDER: i64 = 100;

pub(super) struct Claims<D: Dialect> {
    base: Arc<Base<D>>,
    link: Link<D>,
    receiver: mpsc::Receiver<Operation>,
    outlet: Outlet,
    waiting: Waiting,
    /// To be run now.
    ready: VecDeque<Ready>,
}

impl<D: Dialect> Claims<D> {
    pub(super) fn new(base: Arc<Base<D>>, receiver: mpsc::Receiver<Operation>, outlet: Outlet) -> Self {
        Self {
            waiting: Waiting::new(base.settings.poll_interval),
            link: Link::new(Arc::clone(&base)),
            base,
            receiver,
            outlet,
            ready: VecDeque::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let base = Arc::clone(&self.base);
        let closing = loop {
            let idle = self.ready.is_empty();
            let waits = idle && !self.waiting.is_empty();
            tokio::select! {
                biased;
                operation = self.receiver.recv() => match operation {
                    Some(Operation::Claim(claim)) => self.ready.push_back(Ready::new(claim)),
                    Some(Operation::Cancel { subscription, reply }) => {
                        self.waiting.cancel(subscription);
                        self.ready.retain(|ready| ready.claim.subscription != subscription);
                        let _ = reply.send(Ok(()));
                    }
                    Some(Operation::Close { reply }) => break Some(reply),
                    Some(_) => {}
                    None => break None,
                },
                () = base.news.changed(), if waits => self.waiting.take_news(&base.news, &mut self.ready),
                () = sleep_until(self.waiting.until()), if waits => self.look_around().await,
                () = std::future::ready(()), if !idle => {
                    if let Some(ready) = self.ready.pop_front() {
                        self.claim(ready).await;
                    }
                }
            }
        };
        self.link.close().await;
        if let Some(reply) = closing {
            let _ = reply.send(Ok(()));
        }
    }

    /// Takes what is due by what is known, and asks the server now and then: one question for all queues.
    async fn look_around(&mut self) {
        self.waiting.take_due(&mut self.ready);
        if !self.waiting.poll_is_due() {
            return;
        }
        Counters::count(&self.base.counters.polls);
        let peek = Peek {
            queues: self.waiting.queues(),
        };
        match self.link.run(&peek).await {
            Ok(dues) => {
                for (queue, due) in peek.queues.iter().zip(dues) {
                    self.waiting.note(queue, due);
                }
                self.waiting.take_due(&mut self.ready);
            }
            Err(trouble) => self.fail_all(&trouble.into_failure()),
        }
    }

    async fn claim(&mut self, ready: Ready) {
        let Ready { claim, wakes_next } = ready;
        if claim.reply.is_closed() {
            return;
        }
        let seen = seen(&self.base.news, &claim);
        if let Some(queue) = &claim.shared
            && let Err(trouble) = self.share(queue).await
        {
            let failure = trouble.into_failure();
            let _ = claim.reply.send(Err(failure.clone()));
            if failure.lost {
                self.fail_all(&failure);
            }
            return;
        }
        Counters::count(&self.base.counters.claims);
        let mut decoded = match self.link.run(&claim).await {
            Ok(decoded) => decoded,
            Err(trouble) => {
                let failure = trouble.into_failure();
                let _ = claim.reply.send(Err(failure.clone()));
                if failure.lost {
                    self.fail_all(&failure);
                }
                return;
            }
        };
        let nothing_there = decoded.is_empty();
        let dead = decoded.give_up(&claim.queue, claim.token, SystemTime::now());
        if !dead.is_empty() {
            self.settle(&claim.queue, dead);
        }
        if decoded.rows.is_empty() {
            Counters::count(&self.base.counters.empty_claims);
            if nothing_there {
                self.let_wait(claim, seen).await;
            } else {
                // Behind those that could not be handed out there may be others.
                self.ready.push_front(Ready { claim, wakes_next });
            }
            return;
        }
        if wakes_next && decoded.rows.len() >= claim.room {
            self.waiting.take_next(&claim.queue, &mut self.ready);
        }
        self.hand_over(claim, decoded);
    }

    /// Gives what a queue has to its groups, whoever of them comes first.
    async fn share(&mut self, queue: &Arc<str>) -> Result<(), Trouble> {
        const BATCH: i64 = 256;
        let shared = self.link.run(&Share { queue, limit: BATCH }).await?;
        if shared > 0 {
            // The other groups of this process: no one knows which they are.
            self.base.news.tell_all();
        }
        Ok(())
    }

    fn hand_over(&self, claim: Claim, decoded: Decoded) {
        let Claim {
            queue, token, reply, ..
        } = claim;
        let claimed = Claimed {
            token,
            rows: decoded.rows,
        };
        // No one takes it any more: the rows go back at once.
        if let Err(Ok(claimed)) = reply.send(Ok(claimed)) {
            let ids = claimed.rows.iter().map(|row| row.id).collect();
            self.settle(&queue, vec![Part::Release { token, ids }]);
        }
    }

    /// Lets a claim wait that found nothing, unless there were news meanwhile.
    async fn let_wait(&mut self, claim: Claim, seen: u64) {
        if self::seen(&self.base.news, &claim) != seen {
            self.ready.push_back(Ready::new(claim));
            return;
        }
        let peek = Peek {
            queues: claim.shared.iter().chain([&claim.queue]).map(Arc::clone).collect(),
        };
        match self.link.run(&peek).await {
            Ok(dues) => {
                // What is due and was not claimed is held by someone's transaction, or has to wait for others of its key.
                let soonest = if claim.choice.fifo { IN_ORDER } else { HELD };
                let due = dues.into_iter().flatten().min().map(|due| due.max(soonest));
                self.waiting.add(claim, seen, due);
            }
            Err(trouble) => {
                let failure = trouble.into_failure();
                let _ = claim.reply.send(Err(failure.clone()));
                self.fail_all(&failure);
            }
        }
    }

    fn settle(&self, queue: &Arc<str>, parts: Vec<Part>) {
        self.outlet.notify(Operation::Settle(Settlement {
            queue: Arc::clone(queue),
            parts,
            frees: false,
            reply: None,
        }));
    }

    /// Tells everyone who waits, so that health says it.
    fn fail_all(&mut self, failure: &Failure) {
        let mut claims = std::mem::take(&mut self.ready);
        self.waiting.take_all(&mut claims);
        for Ready { claim, .. } in claims {
            let _ = claim.reply.send(Err(failure.clone()));
        }
    }
}

/// A number that changes whenever there may be something for this claim.
fn seen(news: &News, claim: &Claim) -> u64 {
    let shared = claim.shared.as_ref().map_or(0, |queue| news.count(queue));
    news.count(&claim.queue).wrapping_add(shared)
}

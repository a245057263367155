//! The task that claims: it runs what is asked, and lets wait what finds nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::waiting::{Ready, Waiting};
use super::{Base, Dialect, Link, Peek};
use crate::engine::{Counters, Outlet};
use crate::error::Failure;
use crate::operation::{Claim, Claimed, Decoded, Operation, Part, Settlement};

/// In how many milliseconds to look again for a row that is due and locked.
const HELD: i64 = 20;

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
        let seen = self.base.news.count(&claim.queue);
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
        if self.base.news.count(&claim.queue) != seen {
            self.ready.push_back(Ready::new(claim));
            return;
        }
        let peek = Peek {
            queues: vec![Arc::clone(&claim.queue)],
        };
        match self.link.run(&peek).await {
            Ok(dues) => match dues.first() {
                // What is due and was not claimed is held by someone's transaction.
                Some(Some(due)) => self.waiting.add(claim, seen, Some((*due).max(HELD))),
                _ => self.waiting.add(claim, seen, None),
            },
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

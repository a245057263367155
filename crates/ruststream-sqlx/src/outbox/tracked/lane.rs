//! What layers ask of the database at the same time travels together: one statement for many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ruststream::transport::{ErrorKind, TransportError};
use sqlx::Pool;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::lease::random_token;
use crate::outbox::OutboxDatabase;
use crate::outbox::link::Link;
use crate::outbox::records::{NewTracked, TrackedClaim, TrackedEnd, TrackedState};

/// How many may wait; whoever comes then waits to get in.
const CAPACITY: usize = 1024;

/// The most that travel together.
const GROUP: usize = 256;

/// The connections of one lane: a single one would have whatever comes wait for the group before it, which costs more than
/// small groups do.
const CONNECTIONS: usize = 4;

/// How long the database may take over a group.
const LIMIT: Duration = Duration::from_secs(10);

type Reply<T> = oneshot::Sender<Result<T, TransportError>>;

/// What a layer asks for.
pub(super) enum Work {
    Record(NewTracked, Reply<()>),
    Claim(Wanted, Reply<(TrackedState, i64)>),
    End(Held, TrackedEnd, Reply<()>),
}

/// A record to be claimed.
pub(super) struct Wanted {
    pub(super) id: String,
    pub(super) consumer: Arc<str>,
    pub(super) lease: i64,
}

/// A record that is held under this token.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) id: String,
    pub(super) token: i64,
}

/// The tasks that do it: one for each kind of work, so that neither waits for the other; one in all where the database has one writer.
pub(super) struct Lanes<DB: OutboxDatabase> {
    pool: Pool<DB>,
    lanes: [Mutex<Option<mpsc::Sender<Work>>>; 3],
}

impl<DB: OutboxDatabase> Lanes<DB> {
    pub(super) fn new(pool: &Pool<DB>) -> Self {
        Self {
            pool: pool.clone(),
            lanes: Default::default(),
        }
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask<T>(&self, work: impl FnOnce(Reply<T>) -> Work) -> Result<T, TransportError> {
        let (reply, answer) = oneshot::channel();
        let work = work(reply);
        let lane = self.lane(&work);
        lane.send(work).await.map_err(|_| died())?;
        answer.await.map_err(|_| died())?
    }

    /// Asks for something whose answer no one waits for; it is left out where too much waits.
    pub(super) fn tell(&self, work: impl FnOnce(Reply<()>) -> Work) {
        let (reply, _) = oneshot::channel();
        let work = work(reply);
        let _ = self.lane(&work).try_send(work);
    }

    /// The lane of this work; it is started when it is first needed, and again where its task has died.
    fn lane(&self, work: &Work) -> mpsc::Sender<Work> {
        let place = match work {
            _ if DB::ONE_WRITER => 0,
            Work::Record(..) => 0,
            Work::Claim(..) => 1,
            Work::End(..) => 2,
        };
        let mut lane = self.lanes[place].lock().unwrap_or_else(PoisonError::into_inner);
        match &*lane {
            Some(sender) if !sender.is_closed() => sender.clone(),
            _ => {
                let (sender, receiver) = mpsc::channel(CAPACITY);
                let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
                for _ in 0..if DB::ONE_WRITER { 1 } else { CONNECTIONS } {
                    tokio::spawn(run::<DB>(Link::new(self.pool.clone()), receiver.clone()));
                }
                lane.insert(sender).clone()
            }
        }
    }
}

fn died() -> TransportError {
    TransportError::new(
        ErrorKind::Unavailable,
        "the task that writes for the outbox has ended; another is started on the next call",
    )
}

/// Takes what waits, does it together, and answers.
async fn run<DB: OutboxDatabase>(mut link: Link<DB>, receiver: Arc<tokio::sync::Mutex<mpsc::Receiver<Work>>>) {
    let mut group = Vec::with_capacity(GROUP);
    // One of them waits for work at a time; what comes while all are busy is the next group.
    while receiver.lock().await.recv_many(&mut group, GROUP).await > 0 {
        let mut parts = Parts::default();
        for work in group.drain(..) {
            parts.add(work);
        }
        let outcome = match parts.attempt(&mut link).await {
            // The connection may have died while it was idle; what was done half way is undone, or may be done twice.
            Err(error) if error.is_transient() => parts.attempt(&mut link).await,
            outcome => outcome,
        };
        parts.answer(&outcome);
    }
    link.close().await;
}

/// One group, by kind.
#[derive(Default)]
struct Parts {
    records: Vec<NewTracked>,
    recorded: Vec<Reply<()>>,
    claims: HashMap<(Arc<str>, i64), (TrackedClaim, Vec<Claiming>)>,
    ends: Vec<(TrackedEnd, Vec<(String, i64)>)>,
    ended: Vec<Reply<()>>,
    /// Claims of records that are claimed in this group already: of two deliveries one gets it.
    second: Vec<Reply<(TrackedState, i64)>>,
}

struct Claiming {
    id: String,
    reply: Reply<(TrackedState, i64)>,
}

type States = Vec<HashMap<String, TrackedState>>;

impl Parts {
    fn add(&mut self, work: Work) {
        match work {
            Work::Record(row, reply) => {
                self.records.push(row);
                self.recorded.push(reply);
            }
            Work::Claim(wanted, reply) => {
                let group = (wanted.consumer.clone(), wanted.lease);
                let (claim, claiming) = self.claims.entry(group).or_insert_with(|| {
                    let claim = TrackedClaim {
                        ids: Vec::new(),
                        consumer: wanted.consumer,
                        token: random_token(),
                        lease: wanted.lease,
                    };
                    (claim, Vec::new())
                });
                if claim.ids.contains(&wanted.id) {
                    self.second.push(reply);
                    return;
                }
                claim.ids.push(wanted.id.clone());
                claiming.push(Claiming { id: wanted.id, reply });
            }
            Work::End(held, end, reply) => {
                let held = (held.id, held.token);
                match self.ends.iter_mut().find(|(known, _)| *known == end) {
                    Some((_, list)) => list.push(held),
                    None => self.ends.push((end, vec![held])),
                }
                self.ended.push(reply);
            }
        }
    }

    async fn attempt<DB: OutboxDatabase>(&self, link: &mut Link<DB>) -> Result<States, TransportError> {
        let mut connection = link.take().await?;
        let done = timeout(LIMIT, self.run::<DB>(&mut connection)).await;
        link.put(connection, done)
    }

    async fn run<DB: OutboxDatabase>(&self, connection: &mut DB::Connection) -> Result<States, sqlx::Error> {
        // A group of several statements is one transaction: one commit, and all of it or none.
        let inserts = if DB::ONE_INSERT {
            self.records.len().min(1)
        } else {
            self.records.len().min(2)
        };
        let statements = inserts + self.claims.len() + self.ends.len();
        let together = statements > 1;
        if together {
            DB::begin(connection).await?;
        }
        if !self.records.is_empty() {
            DB::track(connection, &self.records).await?;
        }
        let mut states = Vec::with_capacity(self.claims.len());
        for (claim, _) in self.claims.values() {
            states.push(DB::tracked_claim(connection, claim).await?.into_iter().collect());
        }
        for (end, held) in &self.ends {
            DB::tracked_end(connection, held, *end).await?;
        }
        if together {
            DB::commit(connection).await?;
        }
        Ok(states)
    }

    fn answer(self, outcome: &Result<States, TransportError>) {
        let again = |error: &TransportError| TransportError::new(error.kind(), error.to_string());
        let done = || match outcome {
            Ok(_) => Ok(()),
            Err(error) => Err(again(error)),
        };
        for reply in self.recorded.into_iter().chain(self.ended) {
            let _ = reply.send(done());
        }
        for (place, (claim, claiming)) in self.claims.into_values().enumerate() {
            for Claiming { id, reply } in claiming {
                let answer = match outcome {
                    Ok(states) => Ok((
                        states[place].get(&id).copied().unwrap_or(TrackedState::Unknown),
                        claim.token,
                    )),
                    Err(error) => Err(again(error)),
                };
                let _ = reply.send(answer);
            }
        }
        for reply in self.second {
            let answer = match outcome {
                Ok(_) => Ok((TrackedState::InProgress, 0)),
                Err(error) => Err(again(error)),
            };
            let _ = reply.send(answer);
        }
    }
}

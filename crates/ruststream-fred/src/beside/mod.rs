//! What lists and channels keep in the server beside themselves: what is due later, and for reliable lists what each consumer holds.
//!
//! A message that was taken has a name: a number, given when it was taken from its list, and the attempt. The number is its place among
//! what comes again. All moves are made by scripts, so that nothing is lost or doubled between two commands.

mod delivery;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fred::types::Value;

pub use delivery::{ItemDelivery, ItemReceipt, RedisItem};
pub use settle::ItemSettle;
pub(crate) use settle::released;

use crate::commands::{self, Place, RedisCommands};
use crate::connection::RedisConnection;
use crate::error::Failure;
use crate::hub::Hub;
use crate::lease::Book;
use crate::names::{beside, dead_of, slot_of};
use crate::reply;
use crate::script::Script;
use crate::stream::time::millis;
use crate::wakes::{Wake, Wakes};

static CLAIM: Script = Script::new(include_str!("lua/claim.lua"));
static SETTLE: Script = Script::new(include_str!("lua/settle.lua"));
static RENEW: Script = Script::new(include_str!("lua/renew.lua"));
static LEAVE: Script = Script::new(include_str!("lua/leave.lua"));

/// The longest time between two looks for what is due or orphaned.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// How many messages one call of a script settles or renews, so that the server serves others in between.
const BATCH: usize = 500;

/// What is read, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A list; what is taken is held until it is settled.
    Reliable,
    /// A list; what is taken is gone.
    Plain,
    Channel,
    /// A channel that lives in the slot of its name.
    Shard,
    /// Channels whose names match.
    Pattern,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Reliable => "reliable",
            Self::Plain => "plain",
            Self::Channel => "channel",
            Self::Shard => "shard",
            Self::Pattern => "pattern",
        }
    }
}

/// One subscription.
pub(crate) struct Beside {
    pub(crate) hub: Arc<Hub>,
    pub(crate) wakes: Wakes,
    pub(crate) wake: Arc<Wake>,
    pub(crate) name: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) slot: u16,
    pub(crate) lease: Duration,
    pub(crate) book: Book,
    consumer: String,
    due: String,
    delayed: String,
    numbers: String,
    consumers: String,
    held_prefix: String,
    held: String,
    dead: String,
    /// The channel on which others say that something is kept back.
    pub(crate) bell: String,
    /// Whether handlers queue commands of their own.
    has_commands: bool,
}

/// What a claim brought.
pub(crate) struct Claimed {
    pub(crate) next: Option<Duration>,
    pub(crate) entries: Vec<(Bytes, Bytes)>,
    pub(crate) orphans: Vec<Bytes>,
}

/// One message to settle otherwise than by an ack.
pub(crate) struct Settlement {
    pub(crate) name: Bytes,
    /// The value, where the server does not hold it.
    pub(crate) value: Option<Bytes>,
    pub(crate) what: &'static str,
    pub(crate) number: i64,
    pub(crate) more: Bytes,
}

impl Beside {
    pub(crate) fn new(
        name: &Arc<str>,
        kind: Kind,
        lease: Duration,
        has_commands: bool,
        connection: &RedisConnection,
    ) -> Self {
        let hub = Arc::clone(connection.hub());
        let consumer = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
        let held_prefix = beside(name, "held:");
        Self {
            wakes: connection.wakes().clone(),
            wake: connection.wakes().enter(name),
            slot: slot_of(name),
            kind,
            lease,
            book: Book::default(),
            due: beside(name, "due"),
            delayed: beside(name, "delayed"),
            numbers: beside(name, "numbers"),
            consumers: beside(name, "consumers"),
            held: format!("{held_prefix}{consumer}"),
            held_prefix,
            consumer,
            dead: dead_of(name, hub.settings().is_cluster()),
            bell: bell_of(name),
            has_commands,
            name: Arc::clone(name),
            hub,
        }
    }

    /// Where the handler of a message queues its commands.
    fn commands(&self) -> Option<RedisCommands> {
        let settings = self.hub.settings();
        let slot = settings.is_cluster().then_some(self.slot);
        self.has_commands.then(|| RedisCommands::new(slot, settings.form))
    }

    /// Acks messages and runs what their handlers queued; answers how many of them this consumer does not hold any more.
    async fn ack_with_commands(&self, messages: &[(Bytes, RedisCommands)]) -> Result<usize, Failure> {
        let place = match self.kind {
            Kind::Reliable => Place::List(&self.held),
            _ => Place::Channel(&self.name),
        };
        commands::run(&self.hub, self.slot, &place, messages).await
    }

    /// How often to look for what is due or orphaned.
    pub(crate) fn interval(&self) -> Duration {
        (self.lease / 4).min(LONGEST_INTERVAL)
    }

    /// Says it where the key holds something else than a list: a list is made by its first message, so nobody else would.
    pub(crate) async fn check_type(&self) -> Result<(), Failure> {
        self.hub
            .call(self.slot, "LLEN", || vec![self.name.as_ref().into()])
            .await
            .map(drop)
    }

    /// Takes what is due, and what waits in the list.
    pub(crate) async fn claim(&self, room: usize) -> Result<Claimed, Failure> {
        const WHAT: &str = "the script that claims";
        let keys = [
            &*self.name,
            &self.due,
            &self.delayed,
            &self.numbers,
            &self.consumers,
            &self.held,
        ];
        let answer = CLAIM
            .run(&self.hub, self.slot, &keys, |values| {
                values.push(self.consumer.as_str().into());
                values.push(reply::count(room));
                values.push(millis(self.lease).into());
                values.push(Value::from_static_str(self.kind.word()));
                values.push(self.held_prefix.as_str().into());
            })
            .await?;
        let [next, entries, orphans] = reply::exactly(answer, WHAT)?;
        let next = u64::try_from(reply::number(&next, WHAT)?).ok();
        let mut parts = reply::parts(entries, WHAT)?.into_iter();
        let mut entries = Vec::with_capacity(parts.len() / 2);
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            entries.push((reply::bytes(name, WHAT)?, reply::bytes(value, WHAT)?));
        }
        let orphans = reply::parts(orphans, WHAT)?.into_iter();
        Ok(Claimed {
            next: next.map(Duration::from_millis),
            entries,
            orphans: orphans.map(|name| reply::bytes(name, WHAT)).collect::<Result<_, _>>()?,
        })
    }

    /// Lets go of what was handled; answers how many of them this consumer still held.
    pub(crate) async fn ack(&self, names: &[Bytes]) -> Result<i64, Failure> {
        let answer = self
            .hub
            .call(self.slot, "HDEL", || {
                let mut values = Vec::with_capacity(1 + names.len());
                values.push(self.held.as_str().into());
                values.extend(names.iter().cloned().map(Value::Bytes));
                values
            })
            .await?;
        reply::number(&answer, "HDEL")
    }

    /// Settles otherwise; `done` is told how many are through after each call. Answers how many came too late.
    pub(crate) async fn settle(
        &self,
        settlements: &[Settlement],
        mut done: impl FnMut(usize),
    ) -> Result<usize, Failure> {
        const WHAT: &str = "the script that settles";
        let mut all = 0;
        for part in settlements.chunks(BATCH) {
            let answer = SETTLE
                .run(&self.hub, self.slot, &[&self.due, &self.held, &self.dead], |values| {
                    values.push(self.bell.as_str().into());
                    for one in part {
                        values.push(Value::from_static_str(one.what));
                        values.push(Value::Bytes(one.name.clone()));
                        values.push(one.number.into());
                        values.push(Value::Bytes(one.more.clone()));
                        values.push(i64::from(one.value.is_some()).into());
                        values.push(Value::Bytes(one.value.clone().unwrap_or_default()));
                    }
                })
                .await?;
            let [stale, next] = reply::exactly(answer, WHAT)?;
            all += usize::try_from(reply::number(&stale, WHAT)?).unwrap_or_default();
            if let Ok(next) = u64::try_from(reply::number(&next, WHAT)?) {
                self.wakes.due(&self.name, Duration::from_millis(next));
            }
            done(part.len());
        }
        Ok(all)
    }

    /// Says that this consumer lives; answers the positions of those that it does not hold any more.
    pub(crate) async fn renew(&self, names: &[Bytes]) -> Result<Vec<usize>, Failure> {
        let mut lost = Vec::new();
        for (number, part) in names.chunks(BATCH).enumerate() {
            let answer = RENEW
                .run(&self.hub, self.slot, &[&self.consumers, &self.held], |values| {
                    values.push(self.consumer.as_str().into());
                    values.extend(part.iter().cloned().map(Value::Bytes));
                })
                .await?;
            for position in reply::parts(answer, "the script that renews")? {
                let position = usize::try_from(reply::number(&position, "a position")?).unwrap_or(usize::MAX);
                lost.push(number * BATCH + position);
            }
        }
        Ok(lost)
    }

    /// Removes the consumer, if it holds nothing.
    pub(crate) async fn leave(&self) -> Result<(), Failure> {
        LEAVE
            .run(&self.hub, self.slot, &[&self.consumers, &self.held], |values| {
                values.push(self.consumer.as_str().into());
            })
            .await?;
        Ok(())
    }
}

/// The channel on which is said that something of `name` is kept back.
pub(crate) fn bell_of(name: &str) -> String {
    beside(name, "bell")
}

//! What the two halves of a subscription share: its names, its book, and its scripts.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use bytes::Bytes;
use fred::interfaces::Resp3Frame as Frame;
use fred::types::Value;
use tokio::time::Instant;

use super::delivery::StreamReader;
use super::time::{EntryId, millis};
use crate::commands::{self, Mode, Place, RedisCommands};
use crate::connection::RedisConnection;
use crate::error::{Failure, Sign};
use crate::hub::Hub;
use crate::lease::Book;
use crate::names::{beside, dead_of, slot_of};
use crate::reply;
use crate::script::Script;
use crate::stream::{RedisStream, Retention, Start};
use crate::wakes::{Wake, Wakes};

static OPEN: Script = Script::new(include_str!("lua/open.lua"));
static TEND: Script = Script::new(include_str!("lua/tend.lua"));
static SETTLE: Script = Script::new(include_str!("lua/settle.lua"));
static RENEW: Script = Script::new(include_str!("lua/renew.lua"));
static MISSED: Script = Script::new(include_str!("lua/missed.lua"));
static LEAVE: Script = Script::new(include_str!("lua/leave.lua"));

/// The longest time between two looks for what is due or orphaned.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time that a read waits in the server; a link that is dead is found out soon after.
const LONGEST_BLOCK: Duration = Duration::from_secs(2);

/// A consumer that has not been heard of for so many leases, and holds nothing, is removed. One that lives after all is made again by
/// its next read.
const DEAD_AFTER: u32 = 2;

/// How many entries one call of a script settles or renews, so that the server serves others in between.
const BATCH: usize = 500;

/// One subscription.
pub(super) struct Shared {
    pub(super) hub: Arc<Hub>,
    pub(super) wakes: Wakes,
    pub(super) wake: Arc<Wake>,
    pub(super) stream: Arc<str>,
    pub(super) group: Arc<str>,
    pub(super) consumer: Arc<StreamReader>,
    pub(super) slot: u16,
    pub(super) lease: Duration,
    pub(super) book: Book,
    pub(super) commands: Option<Mode>,
    parked: String,
    start: Start,
    retention: Retention,
    due: String,
    delayed: String,
    state: String,
    pub(super) wake_stream: String,
    dead: String,
}

/// What [`Shared::tend`] found.
pub(super) struct Tended {
    pub(super) entries: Frame,
    /// When something is due next.
    pub(super) next: Option<Duration>,
    pub(super) gone: u64,
    /// It was asked for what this consumer holds and never saw.
    pub(super) is_missed: bool,
}

/// One entry to settle by script.
pub(super) struct Settlement {
    pub(super) id: Bytes,
    pub(super) what: What,
}

/// How an entry is settled.
pub(super) enum What {
    Ack,
    Retry(Duration),
    Return(u32),
    Release,
    /// With the fields that say why.
    Dead(Vec<(&'static str, String)>),
}

/// What became of settlements.
#[derive(Default)]
pub(super) struct SettledByScript {
    pub(super) stale: usize,
    pub(super) gone: u64,
}

impl Shared {
    pub(super) fn new(source: &RedisStream, connection: &RedisConnection) -> Self {
        let hub = Arc::clone(connection.hub());
        let stream = Arc::clone(&source.name);
        let group = source
            .group
            .clone()
            .unwrap_or_else(|| Arc::clone(&hub.settings().group));
        let number = fastrand::u64(..);
        Self {
            wakes: connection.wakes().clone(),
            wake: connection.wakes().enter(&stream),
            consumer: Arc::new(StreamReader {
                stream: Arc::clone(&stream),
                group: Arc::clone(&group),
                name: format!("{}-{number:016x}", std::process::id()),
                lag: AtomicI64::new(-1),
            }),
            slot: slot_of(&stream),
            lease: source.lease,
            book: Book::default(),
            parked: format!("{group}:retries"),
            start: source.start,
            retention: source.retention,
            commands: source.commands,
            due: beside(&stream, &format!("group:{group}:due")),
            delayed: beside(&stream, "delayed"),
            state: beside(&stream, &format!("group:{group}:state")),
            wake_stream: beside(&stream, "wake"),
            dead: dead_of(&stream, hub.settings().is_cluster()),
            hub,
            stream,
            group,
        }
    }

    /// How often to look for what is due or orphaned.
    pub(super) fn interval(&self) -> Duration {
        (self.lease / 4).min(LONGEST_INTERVAL)
    }

    /// How long a read waits in the server.
    pub(super) fn block(&self) -> Duration {
        (self.lease / 3).clamp(Duration::from_millis(5), LONGEST_BLOCK)
    }

    /// Makes the groups where they are missing; answers where the group stands.
    ///
    /// `known` is the last entry that need not come again, where the server lost the group under the subscription.
    pub(super) async fn make_groups(&self, known: Option<EntryId>) -> Result<EntryId, Failure> {
        let answer = OPEN
            .run(&self.hub, self.slot, &[&self.stream, &self.wake_stream], |values| {
                values.push(self.group.as_ref().into());
                values.push(self.parked.as_str().into());
                values.push(self.start.word().into());
                values.push(known.map(|known| known.to_string()).unwrap_or_default().into());
            })
            .await?;
        let position = reply::bytes(answer, "XINFO GROUPS")?;
        EntryId::read(&position).ok_or_else(|| Failure::strange("XINFO GROUPS"))
    }

    /// Looks after delays, retries, orphans, dead consumers and old entries.
    pub(super) async fn tend(&self, room: usize, woken_by: Vec<Bytes>) -> Result<Tended, Failure> {
        let (retention, bound) = match self.retention {
            Retention::All => ("all", 0),
            Retention::Acked => ("acked", 0),
            Retention::Length(length) => ("length", length.cast_signed().max(0)),
            Retention::Age(age) => ("age", millis(age)),
        };
        let answer = TEND
            .run(
                &self.hub,
                self.slot,
                &[&self.stream, &self.due, &self.delayed, &self.state, &self.wake_stream],
                |values| {
                    values.push(self.group.as_ref().into());
                    values.push(self.parked.as_str().into());
                    values.push(self.consumer.name.as_str().into());
                    values.push(reply::count(room));
                    values.push(millis(self.lease).into());
                    values.push(millis(self.interval()).into());
                    values.push(millis(self.lease * DEAD_AFTER).into());
                    values.push(Value::from_static_str(retention));
                    values.push(bound.into());
                    values.extend(woken_by.iter().cloned().map(Value::Bytes));
                },
            )
            .await?;
        let [entries, next, gone, lag] = reply::exactly(answer, "the script that looks after a stream")?;
        self.consumer.note_lag(reply::number(&lag, "a count")?);
        let next = u64::try_from(reply::number(&next, "a time")?).ok();
        Ok(Tended {
            entries,
            next: next.map(Duration::from_millis),
            gone: reply::number(&gone, "a count")?.max(0).cast_unsigned(),
            is_missed: false,
        })
    }

    /// Takes what this consumer holds and does not have in hand: the answer that brought it was lost. No other call that brings
    /// entries may be on its way.
    pub(super) async fn missed(&self, room: usize) -> Result<Tended, Failure> {
        let held = self.book.held();
        let answer = MISSED
            .run(&self.hub, self.slot, &[&self.stream], |values| {
                values.push(self.group.as_ref().into());
                values.push(self.consumer.name.as_str().into());
                values.push(reply::count(room));
                values.extend(held.iter().map(|entry| Value::Bytes(entry.id.clone())));
            })
            .await?;
        let [entries, gone] = reply::exactly(answer, "the script that looks for what was missed")?;
        Ok(Tended {
            entries,
            next: None,
            gone: reply::number(&gone, "a count")?.max(0).cast_unsigned(),
            is_missed: true,
        })
    }

    /// Takes back that the server counted an attempt more of entries which were in hand all along.
    pub(super) async fn uncount(&self, entries: &[(Bytes, u32)]) -> Result<(), Failure> {
        for same in entries.chunk_by(|one, next| one.1 == next.1) {
            let claim = || {
                let mut values: Vec<Value> = vec![
                    self.stream.as_ref().into(),
                    self.group.as_ref().into(),
                    self.consumer.name.as_str().into(),
                    0.into(),
                ];
                values.extend(same.iter().map(|(id, _)| Value::Bytes(id.clone())));
                values.push(Value::from_static_str("RETRYCOUNT"));
                values.push(i64::from(same[0].1.saturating_sub(1)).into());
                values.push(Value::from_static_str("JUSTID"));
                values
            };
            self.hub.call(self.slot, "XCLAIM", claim).await?;
        }
        Ok(())
    }

    /// Acks entries that no one else can have.
    pub(super) async fn ack(&self, ids: &[Bytes]) -> Result<i64, Failure> {
        let answer = self
            .hub
            .call(self.slot, "XACK", || {
                let mut values = Vec::with_capacity(2 + ids.len());
                values.push(self.stream.as_ref().into());
                values.push(self.group.as_ref().into());
                values.extend(ids.iter().cloned().map(Value::Bytes));
                values
            })
            .await?;
        reply::number(&answer, "XACK")
    }

    /// Acks entries and runs what their handlers queued; answers how many of them this consumer does not hold any more. Where `asks` is
    /// set, their commands do not run.
    pub(super) async fn ack_with_commands(
        &self,
        asks: bool,
        entries: &[(Bytes, RedisCommands)],
    ) -> Result<usize, Failure> {
        let place = Place::Stream {
            stream: &self.stream,
            group: &self.group,
            consumer: &self.consumer.name,
            asks,
        };
        commands::run(&self.hub, self.slot, &place, entries).await
    }

    /// Settles entries that this consumer still holds, in as many calls as their number needs. `done` is told how many of them
    /// are through after each.
    pub(super) async fn settle(
        &self,
        settlements: &[Settlement],
        mut done: impl FnMut(usize),
    ) -> Result<SettledByScript, Failure> {
        let mut all = SettledByScript::default();
        for part in settlements.chunks(BATCH) {
            let answer = SETTLE
                .run(
                    &self.hub,
                    self.slot,
                    &[&self.stream, &self.due, &self.dead, &self.wake_stream],
                    |values| {
                        values.push(self.group.as_ref().into());
                        values.push(self.parked.as_str().into());
                        values.push(self.consumer.name.as_str().into());
                        for settlement in part {
                            settlement.write(values);
                        }
                    },
                )
                .await?;
            let [stale, gone, next] = reply::exactly(answer, "the script that settles")?;
            all.stale += usize::try_from(reply::number(&stale, "a count")?).unwrap_or_default();
            all.gone += reply::number(&gone, "a count")?.max(0).cast_unsigned();
            if let Ok(next) = u64::try_from(reply::number(&next, "a time")?) {
                self.wakes.due(&self.stream, Duration::from_millis(next));
            }
            done(part.len());
        }
        Ok(all)
    }

    /// Resets the idle time of these entries; answers the positions of those that someone else has, or no one.
    pub(super) async fn renew(&self, ids: &[Bytes]) -> Result<Vec<usize>, Failure> {
        let mut lost = Vec::new();
        for (number, part) in ids.chunks(BATCH).enumerate() {
            let answer = RENEW
                .run(&self.hub, self.slot, &[&self.stream], |values| {
                    values.push(self.group.as_ref().into());
                    values.push(self.consumer.name.as_str().into());
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
    pub(super) async fn leave(&self) -> Result<(), Failure> {
        let left = LEAVE
            .run(&self.hub, self.slot, &[&self.stream, &self.wake_stream], |values| {
                values.push(self.group.as_ref().into());
                values.push(self.consumer.name.as_str().into());
            })
            .await;
        match left {
            // Where there is no group there is no consumer.
            Err(failure) if failure.sign == Sign::NoGroup => Ok(()),
            left => left.map(drop),
        }
    }

    /// The arguments of a read.
    pub(super) fn read_values(&self, count: usize) -> Vec<Value> {
        vec![
            Value::from_static_str("GROUP"),
            self.group.as_ref().into(),
            self.consumer.name.as_str().into(),
            Value::from_static_str("COUNT"),
            reply::count(count),
            Value::from_static_str("BLOCK"),
            millis(self.block()).into(),
            Value::from_static_str("STREAMS"),
            self.stream.as_ref().into(),
            self.wake_stream.as_str().into(),
            Value::from_static_str(">"),
            Value::from_static_str(">"),
        ]
    }

    /// Tells of entries that were deleted while they were pending: they are settled, and no one will handle them.
    pub(super) fn tell_gone(&self, gone: u64) {
        if gone > 0 {
            tracing::warn!(
                stream = %self.stream, group = %self.group, gone,
                "entries were deleted from the stream before they were handled; they are settled"
            );
        }
    }

    /// The last entry that need not come again, going by what is in hand and what was read last.
    pub(super) fn position(&self, last_read: EntryId) -> EntryId {
        let oldest = self
            .book
            .held()
            .iter()
            .filter_map(|entry| EntryId::read(&entry.id))
            .min();
        oldest.map_or(last_read, |oldest| oldest.before().min(last_read))
    }

    /// When the idle times of what a read brings begin, and whether the answer may have lain here for so long that someone else has
    /// its entries by now.
    pub(super) fn may_be_lost(&self, asked: Instant, now: Instant) -> bool {
        now.saturating_duration_since(asked) > self.lease / 2
    }
}

impl Settlement {
    fn write(&self, values: &mut Vec<Value>) {
        let none = &[][..];
        let (word, number, fields): (&'static str, i64, &[(&'static str, String)]) = match &self.what {
            What::Ack => ("ack", 0, none),
            What::Retry(after) => ("retry", millis(*after), none),
            What::Return(attempts) => ("return", i64::from(*attempts), none),
            What::Release => ("release", 0, none),
            What::Dead(fields) => ("dead", 0, fields),
        };
        values.push(Value::from_static_str(word));
        values.push(Value::Bytes(self.id.clone()));
        values.push(number.into());
        values.push(reply::count(2 * fields.len()));
        for (name, value) in fields {
            values.push(Value::from_static_str(name));
            values.push(value.as_str().into());
        }
    }
}

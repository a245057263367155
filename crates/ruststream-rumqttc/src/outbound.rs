//! What is published: what waits, what is on its way, and who is told of the end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{ConnAckProperties, PubAckReason, PubRel, Publish};
use ruststream::transport::{ErrorKind, TransportError};
use tokio::sync::Notify;

use crate::error::refused_publish;
use crate::wire::MqttVersion;

/// How many messages are on their way to the server at most; it may ask for less.
const WINDOW: usize = 1024;
/// How much is written ahead of the socket.
const AHEAD: usize = 256 * 1024;

/// The messages of one call, which end one by one.
pub(crate) struct Group {
    outcomes: Mutex<Outcomes>,
    /// Nobody waits for them any more.
    abandoned: AtomicBool,
    done: Notify,
}

struct Outcomes {
    left: usize,
    /// Whether each has ended.
    ended: Vec<bool>,
    failures: Vec<(usize, TransportError)>,
}

pub(crate) struct Letter {
    pub(crate) publish: Publish,
    pub(crate) group: Arc<Group>,
    pub(crate) place: usize,
}

/// Where a letter is on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not sent.
    Fresh,
    /// Sent, and not acknowledged.
    Sent,
    /// QoS 2: the server has it, and is to be told that we know.
    Received,
}

struct Flight {
    number: u64,
    letter: Letter,
    stage: Stage,
}

/// What the server takes, as it said when the link was made.
struct Limits {
    window: usize,
    packet: Option<u32>,
    quality: u8,
    retain: bool,
}

pub(crate) struct Outbound {
    version: MqttVersion,
    waiting: VecDeque<Flight>,
    flying: HashMap<u16, Flight>,
    /// Packet ids of calls that are no publishes.
    calls: HashSet<u16>,
    limits: Limits,
    last_id: u16,
    number: u64,
}

impl Group {
    pub(crate) fn new(size: usize) -> Arc<Self> {
        Arc::new(Self {
            outcomes: Mutex::new(Outcomes {
                left: size,
                ended: vec![false; size],
                failures: Vec::new(),
            }),
            abandoned: AtomicBool::new(false),
            done: Notify::new(),
        })
    }

    fn outcomes(&self) -> MutexGuard<'_, Outcomes> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn end(&self, place: usize, failure: Option<TransportError>) {
        let mut outcomes = self.outcomes();
        if std::mem::replace(&mut outcomes.ended[place], true) {
            return;
        }
        outcomes.failures.extend(failure.map(|failure| (place, failure)));
        outcomes.left -= 1;
        if outcomes.left == 0 {
            self.done.notify_one();
        }
    }

    /// Waits for the end of all. One caller at a time.
    pub(crate) async fn wait(&self) {
        while self.outcomes().left > 0 {
            self.done.notified().await;
        }
    }

    /// Ends those that have not ended with an error, and answers all failures.
    pub(crate) fn close(&self, late: impl Fn() -> TransportError) -> Vec<(usize, TransportError)> {
        self.abandon();
        let mut outcomes = self.outcomes();
        let mut failures = std::mem::take(&mut outcomes.failures);
        let open = (0..outcomes.ended.len()).filter(|place| !outcomes.ended[*place]);
        failures.extend(open.map(|place| (place, late())));
        failures
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}

impl Outbound {
    pub(crate) fn new(version: MqttVersion) -> Self {
        Self {
            version,
            waiting: VecDeque::new(),
            flying: HashMap::new(),
            calls: HashSet::new(),
            limits: Limits {
                window: WINDOW,
                packet: None,
                quality: 2,
                retain: true,
            },
            last_id: 0,
            number: 0,
        }
    }

    pub(crate) fn push(&mut self, letter: Letter) {
        self.number += 1;
        self.waiting.push_back(Flight {
            number: self.number,
            letter,
            stage: Stage::Fresh,
        });
    }

    /// Takes out what waits and nobody waits for.
    pub(crate) fn forget_abandoned(&mut self) {
        self.waiting
            .retain(|flight| flight.stage != Stage::Fresh || !flight.letter.group.is_abandoned());
    }

    fn free_id(&mut self) -> Option<u16> {
        let Self {
            flying,
            calls,
            waiting,
            last_id,
            ..
        } = self;
        for _ in 0..u16::MAX {
            *last_id = last_id.checked_add(1).unwrap_or(1);
            // What is sent again after a lost link keeps its number; it waits before all else.
            let mut again = waiting.iter().take_while(|flight| flight.stage != Stage::Fresh);
            let mut again = || again.any(|flight| flight.letter.publish.pkid == *last_id);
            if !flying.contains_key(last_id) && !calls.contains(last_id) && !again() {
                return Some(*last_id);
            }
        }
        None
    }

    /// A packet id for a call; it is free again by [`call_ended`](Self::call_ended).
    pub(crate) fn call_id(&mut self) -> Option<u16> {
        let id = self.free_id()?;
        self.calls.insert(id);
        Some(id)
    }

    pub(crate) fn call_ended(&mut self, packet_id: u16) {
        self.calls.remove(&packet_id);
    }

    /// Writes what may be on its way.
    pub(crate) fn fill(&mut self, out: &mut BytesMut) {
        while out.len() < AHEAD && self.flying.len() < self.limits.window {
            let Some(mut flight) = self.waiting.pop_front() else {
                return;
            };
            if flight.stage == Stage::Fresh {
                if flight.letter.group.is_abandoned() {
                    continue;
                }
                if let Err(error) = self.limits.check(&flight.letter.publish) {
                    flight.letter.group.end(flight.letter.place, Some(error));
                    continue;
                }
                if flight.letter.publish.qos == QoS::AtMostOnce {
                    let written = self
                        .version
                        .write_publish(&flight.letter.publish, out)
                        .map_err(unwritable);
                    flight.letter.group.end(flight.letter.place, written.err());
                    continue;
                }
                let Some(id) = self.free_id() else {
                    self.waiting.push_front(flight);
                    return;
                };
                flight.letter.publish.pkid = id;
            }
            let id = flight.letter.publish.pkid;
            let length = out.len();
            let written = if flight.stage == Stage::Received {
                PubRel::new(id, None).write(out).map(drop)
            } else {
                flight.letter.publish.dup = flight.stage == Stage::Sent;
                self.version.write_publish(&flight.letter.publish, out)
            };
            if let Err(error) = written {
                out.truncate(length);
                flight.letter.group.end(flight.letter.place, Some(unwritable(error)));
                continue;
            }
            if flight.stage == Stage::Fresh {
                flight.stage = Stage::Sent;
            }
            self.flying.insert(id, flight);
        }
    }

    /// PUBACK.
    pub(crate) fn acknowledged(&mut self, packet_id: u16, reason: PubAckReason) {
        if let Some(flight) = self.flying.remove(&packet_id) {
            flight.letter.end(reason);
        }
    }

    /// PUBREC: the release goes out at once.
    pub(crate) fn received(&mut self, packet_id: u16, reason: PubAckReason, acks: &mut BytesMut) {
        let refused = refused_publish("", reason).is_some();
        match self.flying.get_mut(&packet_id) {
            Some(_) if refused => self.acknowledged(packet_id, reason),
            Some(flight) => {
                flight.stage = Stage::Received;
                let _ = PubRel::new(packet_id, None).write(acks);
            }
            // Of an earlier process in the same session: the server waits for the release.
            None if !refused => {
                let _ = PubRel::new(packet_id, None).write(acks);
            }
            None => {}
        }
    }

    /// PUBCOMP.
    pub(crate) fn completed(&mut self, packet_id: u16) {
        self.acknowledged(packet_id, PubAckReason::Success);
    }

    /// What was on its way is sent again, before all else and in its order.
    pub(crate) fn link_lost(&mut self) {
        let mut again: Vec<_> = self.flying.drain().map(|(_, flight)| flight).collect();
        // QoS 2 is brought to its end in any case: the server may hold the message under that number.
        again.retain(|flight| flight.letter.publish.qos == QoS::ExactlyOnce || !flight.letter.group.is_abandoned());
        again.sort_unstable_by_key(|flight| std::cmp::Reverse(flight.number));
        for flight in again {
            self.waiting.push_front(flight);
        }
        self.calls.clear();
    }

    /// A new link with these limits.
    pub(crate) fn link_made(&mut self, session_present: bool, properties: Option<&ConnAckProperties>) {
        let window = properties.and_then(|told| told.receive_max).map_or(WINDOW, usize::from);
        self.limits = Limits {
            window: window.clamp(1, WINDOW),
            packet: properties.and_then(|told| told.max_packet_size),
            quality: properties.and_then(|told| told.max_qos).unwrap_or(2),
            retain: properties.and_then(|told| told.retain_available) != Some(0),
        };
        if session_present {
            return;
        }
        // The numbers mean nothing to the server any more.
        self.waiting.retain_mut(|flight| match flight.stage {
            Stage::Received => {
                flight.letter.group.end(flight.letter.place, None);
                false
            }
            Stage::Sent if flight.letter.group.is_abandoned() => false,
            _ => {
                flight.stage = Stage::Fresh;
                flight.letter.publish.dup = false;
                true
            }
        });
    }

    /// Ends all with an error.
    pub(crate) fn fail_all(&mut self, error: impl Fn() -> TransportError) {
        let flying = self.flying.drain().map(|(_, flight)| flight);
        for flight in self.waiting.drain(..).chain(flying) {
            flight.letter.group.end(flight.letter.place, Some(error()));
        }
    }
}

impl Letter {
    fn end(&self, reason: PubAckReason) {
        let name = std::str::from_utf8(&self.publish.topic).unwrap_or_default();
        self.group.end(self.place, refused_publish(name, reason));
    }
}

impl Limits {
    fn check(&self, publish: &Publish) -> Result<(), TransportError> {
        let name = String::from_utf8_lossy(&publish.topic);
        let size = publish.size() + 2;
        if let Some(most) = self.packet
            && size > most as usize
        {
            let text = format!(
                "a message to `{name}` takes {size} bytes, and the server takes {most}; raise `max_packet_size` there, or keep large \
                 payloads in a store"
            );
            return Err(TransportError::new(ErrorKind::TooLarge, text));
        }
        if publish.qos as u8 > self.quality {
            let text = format!(
                "the server takes QoS {} at most; `{name}` was to have {}",
                self.quality, publish.qos as u8
            );
            return Err(TransportError::new(ErrorKind::Invalid, text));
        }
        if publish.retain && !self.retain {
            let text = format!("the server retains nothing; `{name}` was to be retained");
            return Err(TransportError::new(ErrorKind::Invalid, text));
        }
        Ok(())
    }
}

pub(crate) fn unwritable(error: rumqttc::v5::mqttbytes::Error) -> TransportError {
    TransportError::new(
        ErrorKind::TooLarge,
        "a message is too large for a packet of MQTT, 256 MiB",
    )
    .with_cause(error)
}

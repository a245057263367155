//! What the server sends: which subscriptions get it, who holds it, and when it is acknowledged.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{PubAck, PubComp, PubRec, Publish};
use tokio::sync::Notify;

use crate::delivery::{Message, MqttDelivery, MqttReceipt};
use crate::filters::{Filters, Route};

/// In the place of a subscription: the message waits for one.
const NOBODY: u32 = u32::MAX;

/// Everything that came and is not settled.
pub(crate) struct Inbound {
    pub(crate) filters: Filters,
    queues: HashMap<u32, Queue>,
    /// Who holds what, by packet id.
    held: Vec<Option<Held>>,
    /// For subscriptions that are not open: those of an earlier process, or ones that ended with messages in hand.
    parked: Vec<Parked>,
    /// QoS 2: PUBREC was said, and not yet answered. What comes with such a packet id came before.
    received: HashSet<u16>,
    /// How often those were handed out that were in hand when the last link was lost.
    previous: HashMap<u16, u32>,
    /// Whether this process had a link before, and so knows what was in hand.
    knows: bool,
    /// Acknowledgements that are to be written.
    pub(crate) acks: BytesMut,
    routes: Vec<Route>,
    serial: u64,
    last_subscription: u32,
    buffer: usize,
}

struct Queue {
    filter: u32,
    /// In the order in which they came.
    ready: VecDeque<Ready>,
    notify: Arc<Notify>,
    /// How many of them are of QoS 0, which the server does not wait with.
    unacked: usize,
    dropped: u64,
}

struct Ready {
    message: Arc<Message>,
    attempt: u32,
    unfinished: bool,
}

struct Held {
    message: Arc<Message>,
    owner: u32,
    /// The other subscriptions that got the same packet; mostly none.
    others: Vec<u32>,
    /// The highest attempt that was handed out; 0 where none was.
    handed: u32,
}

struct Parked {
    filter: Option<u32>,
    ready: Ready,
}

impl Inbound {
    pub(crate) fn new(buffer: usize) -> Self {
        Self {
            filters: Filters::default(),
            queues: HashMap::new(),
            held: Vec::new(),
            parked: Vec::new(),
            received: HashSet::new(),
            previous: HashMap::new(),
            knows: false,
            acks: BytesMut::new(),
            routes: Vec::new(),
            serial: 0,
            last_subscription: 0,
            buffer,
        }
    }

    /// Opens a queue behind a filter; it gets what waits for it.
    pub(crate) fn open(&mut self, filter: u32, notify: Arc<Notify>) -> u32 {
        self.last_subscription += 1;
        let subscription = self.last_subscription;
        self.filters.join(filter, subscription);
        let mut queue = Queue {
            filter,
            ready: VecDeque::new(),
            notify,
            unacked: 0,
            dropped: 0,
        };
        let filters = &self.filters;
        let held = &mut self.held;
        self.parked.retain_mut(|parked| {
            let fields = parked.ready.message.fields();
            let is_for_it = match parked.filter {
                Some(known) => known == filter,
                None => filters.matches(filter, fields.topic()),
            };
            if is_for_it {
                if let Some(Some(held)) = held.get_mut(usize::from(fields.packet_id())) {
                    held.pass_on(NOBODY, subscription);
                }
                queue.insert(parked.ready.take());
            }
            !is_for_it
        });
        self.queues.insert(subscription, queue);
        subscription
    }

    /// Ends a queue: what it was not asked for waits for another.
    pub(crate) fn leave(&mut self, subscription: u32) {
        let Some(queue) = self.queues.remove(&subscription) else {
            return;
        };
        self.filters.leave(queue.filter, subscription);
        for ready in queue.ready {
            let packet_id = ready.message.fields().packet_id();
            if let Some(Some(held)) = self.held.get_mut(usize::from(packet_id)) {
                held.pass_on(subscription, NOBODY);
            }
            if packet_id != 0 {
                self.parked.push(Parked {
                    filter: Some(queue.filter),
                    ready,
                });
            }
        }
    }

    /// Nobody can settle any more what the subscription has in hand: it waits for another.
    pub(crate) fn forget(&mut self, filter: u32, subscription: u32) {
        self.leave(subscription);
        for held in self.held.iter_mut().flatten() {
            while held.pass_on(subscription, NOBODY) {
                let ready = Ready {
                    message: held.message.clone(),
                    attempt: held.handed + 1,
                    unfinished: true,
                };
                self.parked.push(Parked {
                    filter: Some(filter),
                    ready,
                });
            }
        }
        self.parked.sort_by_key(|parked| parked.ready.message.serial);
    }

    /// Takes in what the server published.
    pub(crate) fn publish(&mut self, publish: Publish) {
        let (packet_id, duplicate) = (publish.pkid, publish.dup);
        if packet_id != 0 && self.received.contains(&packet_id) {
            write_ack(&mut self.acks, QoS::ExactlyOnce, packet_id);
            return;
        }
        let mut routes = std::mem::take(&mut self.routes);
        routes.clear();
        self.filters.route(&publish, &mut routes);
        let quality = publish.qos;
        self.serial += 1;
        let Some(message) = Message::new(self.serial, publish).map(Arc::new) else {
            if packet_id != 0 {
                write_ack(&mut self.acks, quality, packet_id);
            }
            return;
        };
        // The mark says only "again": what was in hand in this process is known, and of others it has to be believed.
        let handed = if !duplicate {
            0
        } else if self.knows {
            self.previous.remove(&packet_id).unwrap_or_default()
        } else {
            1
        };
        let mut held = Held {
            message: message.clone(),
            owner: NOBODY,
            others: Vec::new(),
            handed: 0,
        };
        for (number, route) in routes.iter().enumerate() {
            let ready = Ready {
                message: message.clone(),
                attempt: handed + 1,
                // Of another process it is not known whether a handler ever had it: it may have waited behind others.
                unfinished: handed > 0 && self.knows,
            };
            let owner = match route {
                Route::To(subscription) => {
                    if let Some(queue) = self.queues.get_mut(subscription) {
                        queue.push(ready, self.buffer);
                    }
                    *subscription
                }
                Route::Park(filter) => {
                    if self.parked.is_empty() {
                        tracing::debug!(
                            topic = message.fields().topic(),
                            "a message waits for its subscription to open"
                        );
                    }
                    // The server waits with those that it numbers; of the others as many wait here as in a queue.
                    if packet_id != 0 || self.parked.len() < self.buffer {
                        self.parked.push(Parked { filter: *filter, ready });
                    }
                    NOBODY
                }
            };
            if number == 0 {
                held.owner = owner;
            } else {
                held.others.push(owner);
            }
        }
        self.routes = routes;
        if packet_id != 0 {
            let place = usize::from(packet_id);
            if self.held.len() <= place {
                self.held.resize_with(place + 1, || None);
            }
            self.held[place] = Some(held);
        }
    }

    /// The server knows that it was received, at QoS 2.
    pub(crate) fn release(&mut self, packet_id: u16) {
        self.received.remove(&packet_id);
        let _ = PubComp::new(packet_id, None).write(&mut self.acks);
    }

    /// Hands out what is there, up to the room; answers how many of QoS 0 were dropped since the last time.
    pub(crate) fn take(&mut self, subscription: u32, epoch: u32, room: usize, into: &mut Vec<MqttDelivery>) -> u64 {
        let Some(queue) = self.queues.get_mut(&subscription) else {
            return 0;
        };
        let count = room.min(queue.ready.len());
        for ready in queue.ready.drain(..count) {
            let packet_id = ready.message.fields().packet_id();
            if packet_id == 0 {
                queue.unacked -= 1;
            } else if let Some(Some(held)) = self.held.get_mut(usize::from(packet_id)) {
                held.handed = held.handed.max(ready.attempt);
            }
            let receipt = MqttReceipt {
                message: ready.message,
                epoch,
                subscription,
                attempt: ready.attempt,
                unfinished: ready.unfinished,
            };
            into.push(MqttDelivery { receipt });
        }
        std::mem::take(&mut queue.dropped)
    }

    /// Acks for one subscription; the last of a packet tells the server.
    pub(crate) fn ack(&mut self, receipt: &MqttReceipt) {
        let fields = receipt.message.fields();
        let packet_id = fields.packet_id();
        let Some(place) = self.held.get_mut(usize::from(packet_id)) else {
            return;
        };
        let Some(held) = place else { return };
        if held.settle(receipt.subscription) {
            *place = None;
            if fields.quality() == QoS::ExactlyOnce {
                self.received.insert(packet_id);
            }
            write_ack(&mut self.acks, fields.quality(), packet_id);
        }
    }

    /// Gives back, in its old place.
    pub(crate) fn give_back(&mut self, filter: u32, receipt: MqttReceipt, attempt: u32) {
        let ready = Ready {
            message: receipt.message,
            attempt,
            unfinished: false,
        };
        let packet_id = ready.message.fields().packet_id();
        if let Some(queue) = self.queues.get_mut(&receipt.subscription) {
            queue.insert(ready);
            queue.notify.notify_one();
        } else if packet_id != 0 {
            if let Some(Some(held)) = self.held.get_mut(usize::from(packet_id)) {
                held.pass_on(receipt.subscription, NOBODY);
            }
            self.parked.push(Parked {
                filter: Some(filter),
                ready,
            });
            self.parked.sort_by_key(|parked| parked.ready.message.serial);
        }
    }

    /// The link is lost: the server sends again what was not acknowledged.
    pub(crate) fn link_lost(&mut self) {
        self.knows = true;
        self.previous.clear();
        for (packet_id, held) in self.held.drain(..).enumerate() {
            if let Some(held) = held {
                self.previous.insert(packet_id as u16, held.handed);
            }
        }
        self.acks.clear();
        self.parked.clear();
        for queue in self.queues.values_mut() {
            queue.ready.retain(|ready| ready.message.fields().packet_id() == 0);
            queue.notify.notify_one();
        }
    }

    /// The server has forgotten the session.
    pub(crate) fn session_lost(&mut self) {
        self.previous.clear();
        self.received.clear();
    }

    /// Wakes all who wait for messages.
    pub(crate) fn wake_all(&self) {
        for queue in self.queues.values() {
            queue.notify.notify_one();
        }
    }

    pub(crate) fn wake(&self, filter: u32) {
        for queue in self.queues.values().filter(|queue| queue.filter == filter) {
            queue.notify.notify_one();
        }
    }
}

fn write_ack(acks: &mut BytesMut, quality: QoS, packet_id: u16) {
    // Writing into memory cannot fail with a packet id that is not 0.
    let _ = match quality {
        QoS::ExactlyOnce => PubRec::new(packet_id, None).write(acks),
        _ => PubAck::new(packet_id, None).write(acks),
    };
}

impl Queue {
    /// At the end; the oldest of QoS 0 is dropped where there are too many.
    fn push(&mut self, ready: Ready, buffer: usize) {
        if ready.message.fields().packet_id() == 0 {
            self.unacked += 1;
            if self.unacked > buffer
                && let Some(oldest) = self
                    .ready
                    .iter()
                    .position(|ready| ready.message.fields().packet_id() == 0)
            {
                self.ready.remove(oldest);
                self.unacked -= 1;
                self.dropped += 1;
            }
        }
        if self.ready.is_empty() {
            self.notify.notify_one();
        }
        self.ready.push_back(ready);
    }

    /// In its place among what waits.
    fn insert(&mut self, ready: Ready) {
        if ready.message.fields().packet_id() == 0 {
            self.unacked += 1;
        }
        let place = self
            .ready
            .partition_point(|other| other.message.serial < ready.message.serial);
        self.ready.insert(place, ready);
    }
}

impl Ready {
    fn take(&self) -> Self {
        Self {
            message: self.message.clone(),
            attempt: self.attempt,
            unfinished: self.unfinished,
        }
    }
}

impl Held {
    /// Makes `to` the holder where `from` was; false if it was not.
    fn pass_on(&mut self, from: u32, to: u32) -> bool {
        let holder = std::iter::once(&mut self.owner)
            .chain(&mut self.others)
            .find(|holder| **holder == from);
        holder.map(|holder| *holder = to).is_some()
    }

    /// Whether the last of its holders has settled it.
    fn settle(&mut self, subscription: u32) -> bool {
        if self.owner == subscription {
            match self.others.pop() {
                Some(other) => self.owner = other,
                None => return true,
            }
        } else {
            let other = self.others.iter().position(|other| *other == subscription);
            other.map(|place| self.others.swap_remove(place));
        }
        false
    }
}

//! What the halves, the publishers and the task of the link share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5::{ConnAck, Packet, PingReq, SubscribeReasonCode};
use ruststream::transport::{ErrorKind, TransportError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::error::{Failure, ended_link, refused_subscription, same};
use crate::filters::Standing;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::settings::Settings;
use crate::wire::MqttVersion;

pub(crate) struct Shared {
    pub(crate) settings: Arc<Settings>,
    state: Mutex<State>,
    /// There is something to write, or the connection is to end.
    pub(crate) work: Notify,
    status: watch::Sender<Status>,
}

/// The state of the link, for those who wait for it.
#[derive(Debug, Clone)]
pub(crate) enum Status {
    Connecting,
    Up,
    /// What ended the last link or kept one from being made; the next is on its way.
    Down(Failure),
    /// Closed by this process.
    Closed,
}

pub(crate) struct State {
    version: MqttVersion,
    /// Counts the links; receipts of an earlier one are stale.
    pub(crate) epoch: u32,
    pub(crate) up: bool,
    /// What ended the last link.
    pub(crate) lost: Option<String>,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) ending: Ending,
    /// Asked for, and answered.
    pings: (u64, u64),
    ping_due: bool,
}

/// Whether and how the connection is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    No,
    /// What is to be written is written, and the server told.
    Told,
    /// At once, as if the process had ended.
    Untold,
}

impl Shared {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        let buffer = usize::from(settings.receive_maximum);
        let version = settings.version;
        Self {
            settings,
            state: Mutex::new(State {
                version,
                epoch: 0,
                up: false,
                lost: None,
                inbound: Inbound::new(buffer),
                outbound: Outbound::new(version),
                ending: Ending::No,
                pings: (0, 0),
                ping_due: false,
            }),
            work: Notify::new(),
            status: watch::Sender::new(Status::Connecting),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Tells those who look at the status to look again.
    pub(crate) fn changed(&self) {
        self.status.send_modify(|_| {});
    }

    pub(crate) fn closed(&self) -> TransportError {
        let text = format!("the connection to {} was closed", self.settings.label);
        TransportError::new(ErrorKind::Closed, text)
    }

    pub(crate) fn late(&self, what: &str) -> TransportError {
        let text = format!("{} did not answer in time: {what}", self.settings.label);
        TransportError::new(ErrorKind::Timeout, text)
    }

    /// Asks `look` at each change of the status until it answers, or until the call's time is over.
    pub(crate) async fn wait_for<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&mut State, &Status) -> Option<Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let deadline = Instant::now() + self.settings.call_timeout;
        let mut status = self.status();
        loop {
            let now = status.borrow_and_update().clone();
            if matches!(now, Status::Closed) {
                return Err(self.closed());
            }
            if let Some(answer) = look(&mut self.state(), &now) {
                return answer;
            }
            match timeout_at(deadline, status.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(self.closed()),
                Err(_) => {
                    return Err(match now {
                        Status::Down(failure) => failure.into(),
                        _ => self.late(what),
                    });
                }
            }
        }
    }

    /// Waits until there is a link.
    pub(crate) async fn up(&self) -> Result<(), TransportError> {
        self.wait_for("a link", |_, status| match status {
            Status::Up => Some(Ok(())),
            Status::Down(failure) if !failure.is_transient() => Some(Err(failure.clone().into())),
            _ => None,
        })
        .await
    }

    /// Asks the server for an answer, and waits for it.
    pub(crate) async fn ping(&self) -> Result<(), TransportError> {
        self.up().await?;
        let number = {
            let mut state = self.state();
            state.pings.0 += 1;
            state.ping_due = true;
            state.pings.0
        };
        self.work.notify_one();
        self.wait_for("a ping", |state, _| (state.pings.1 >= number).then_some(Ok(())))
            .await
    }

    pub(crate) fn link_made(&self, answer: &ConnAck) {
        let mut state = self.state();
        state.up = true;
        state
            .outbound
            .link_made(answer.session_present, answer.properties.as_ref());
        state.inbound.filters.link_made(answer.session_present);
        if !answer.session_present {
            state.inbound.session_lost();
        }
        drop(state);
        self.status.send_replace(Status::Up);
    }

    pub(crate) fn link_lost(&self, failure: Failure) {
        let mut state = self.state();
        if state.up {
            state.up = false;
            state.lost = Some(failure.text.clone());
            state.epoch += 1;
            state.inbound.link_lost();
            state.outbound.link_lost();
        }
        state.outbound.forget_abandoned();
        if !failure.is_transient() {
            state.outbound.fail_all(|| failure.clone().into());
        }
        drop(state);
        self.status.send_replace(Status::Down(failure));
    }

    /// Ends the connection; the task of the link says when it is done.
    pub(crate) fn end(&self, ending: Ending) {
        let mut state = self.state();
        if state.ending == Ending::No {
            state.ending = ending;
        }
        drop(state);
        self.work.notify_one();
    }

    pub(crate) fn has_ended(&self) {
        let mut state = self.state();
        state.up = false;
        state.epoch += 1;
        state.outbound.fail_all(|| self.closed());
        state.inbound.wake_all();
        drop(state);
        self.status.send_replace(Status::Closed);
    }
}

impl State {
    /// Takes in one packet; the error ends the link. True if someone has to be told.
    pub(crate) fn take_in(&mut self, packet: Packet, label: &str) -> Result<bool, Failure> {
        match packet {
            Packet::Publish(publish) => self.inbound.publish(publish),
            Packet::PubAck(ack) => self.outbound.acknowledged(ack.pkid, ack.reason),
            Packet::PubRec(ack) => self
                .outbound
                .received(ack.pkid, same(ack.reason), &mut self.inbound.acks),
            Packet::PubRel(release) => self.inbound.release(release.pkid),
            Packet::PubComp(ack) => self.outbound.completed(ack.pkid),
            Packet::SubAck(ack) => {
                self.outbound.call_ended(ack.pkid);
                let filter = self
                    .inbound
                    .filters
                    .answered(ack.pkid, |path| match ack.return_codes.first() {
                        Some(SubscribeReasonCode::Success(_)) => Ok(()),
                        Some(code) => Err(refused_subscription(
                            &format!("the subscription `{path}` on {label}"),
                            *code,
                        )),
                        None => Err(Failure::new(
                            ErrorKind::Unavailable,
                            format!("{label} answered a subscription with nothing"),
                        )),
                    });
                if let Some(filter) = filter {
                    self.inbound.wake(filter);
                }
                return Ok(true);
            }
            Packet::UnsubAck(ack) => self.outbound.call_ended(ack.pkid),
            Packet::PingResp(_) => {
                self.pings.1 = self.pings.0;
                return Ok(true);
            }
            Packet::Disconnect(told) => return Err(ended_link(label, told.reason_code)),
            other => {
                let text = format!("{label} sent what only a client sends: {other:?}");
                return Err(Failure::new(ErrorKind::Unavailable, text));
            }
        }
        Ok(false)
    }

    pub(crate) fn ask_for_ping(&mut self) {
        self.ping_due = true;
    }

    /// Writes what is due: acknowledgements, subscriptions, messages.
    pub(crate) fn fill(&mut self, out: &mut BytesMut) {
        if !self.inbound.acks.is_empty() {
            out.extend_from_slice(&self.inbound.acks);
            self.inbound.acks.clear();
        }
        if std::mem::take(&mut self.ping_due) {
            let _ = PingReq::write(out);
        }
        let version = self.version;
        let Self { inbound, outbound, .. } = self;
        while let Some((packet_id, number, filter)) = inbound.filters.next_to_ask(|| outbound.call_id()) {
            version.write_subscribe(packet_id, number, filter, out);
        }
        while let Some(path) = inbound.filters.next_to_drop() {
            let Some(packet_id) = outbound.call_id() else { break };
            version.write_unsubscribe(packet_id, path, out);
        }
        outbound.fill(out);
    }

    pub(crate) fn standing(&self, filter: u32) -> Standing {
        self.inbound.filters.standing(filter)
    }
}

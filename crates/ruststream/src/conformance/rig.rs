//! What checks share: a connection with a name of its own, and a subscription whose every wait has a deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::tally::{Tally, preview};
use super::violation::ensure;
use super::{Features, Harness, Violation};
use crate::app::AppError;
use crate::message::Outgoing;
use crate::transport::{
    Broker, Capabilities, Connection, Delivery, Fetch, Publish, PublishError, Settle, Settled, Source, TransportError,
    Verdict,
};

type ConnectionOf<H> = <<H as Harness>::Broker as Broker>::Connection;
type SourceOf<H> = <<H as Harness>::Broker as Broker>::Source;
type FetchOf<H> = <SourceOf<H> as Source>::Fetch;
type SettleOf<H> = <SourceOf<H> as Source>::Settle;
type DeliveryOf<H> = <FetchOf<H> as Fetch>::Delivery;
type ReceiptOf<H> = <SettleOf<H> as Settle>::Receipt;

/// How long to wait after a passing error.
const BACKOFF: Duration = Duration::from_millis(20);

/// A connection, and the name that the check uses.
pub(super) struct Rig<'h, H: Harness> {
    pub(super) harness: &'h H,
    pub(super) connection: ConnectionOf<H>,
    pub(super) source: SourceOf<H>,
    pub(super) name: String,
    /// Set where the check chose it.
    lease: Option<Duration>,
}

impl<'h, H: Harness> Rig<'h, H> {
    /// A rig on a fresh name.
    pub(super) async fn new(harness: &'h H) -> Result<Self, Violation> {
        Self::on(harness, harness.name(), None).await
    }

    /// A rig on a fresh name with short leases; `None` where the transport has none to set.
    pub(super) async fn leased(harness: &'h H, lease: Duration) -> Result<Option<Self>, Violation> {
        let name = harness.name();
        match harness.leased_source(&name, lease) {
            Some(source) => {
                let rig = Self::on(harness, name, Some(source)).await?;
                Ok(Some(Self {
                    lease: Some(lease),
                    ..rig
                }))
            }
            None => Ok(None),
        }
    }

    /// Another connection on the same name, as another process has it.
    pub(super) async fn another(&self) -> Result<Self, Violation> {
        let source = self
            .lease
            .and_then(|lease| self.harness.leased_source(&self.name, lease));
        let rig = Self::on(self.harness, self.name.clone(), source).await?;
        Ok(Self {
            lease: self.lease,
            ..rig
        })
    }

    /// A rig on a name that something else writes to.
    pub(super) async fn named(harness: &'h H, name: impl Into<String>) -> Result<Self, Violation> {
        Self::on(harness, name.into(), None).await
    }

    /// A source of its own for an app, on the name and with the leases of this rig.
    pub(super) fn source_for(&self, broker: &H::Broker) -> SourceOf<H> {
        let leased = self
            .lease
            .and_then(|lease| self.harness.leased_source(&self.name, lease));
        leased.unwrap_or_else(|| broker.source(&self.name))
    }

    async fn on(harness: &'h H, name: String, source: Option<SourceOf<H>>) -> Result<Self, Violation> {
        let broker = harness.broker();
        let source = source.unwrap_or_else(|| broker.source(&name));
        let connection = within(harness.deadline(), "connect", broker.connect()).await?;
        Ok(Self {
            harness,
            connection,
            source,
            name,
            lease: None,
        })
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.source.capabilities()
    }

    pub(super) fn features(&self) -> Features {
        self.harness.features()
    }

    /// How long to wait for what is to happen; what was left in hand may come back only when its lease ends.
    pub(super) fn deadline(&self) -> Duration {
        self.harness.deadline() + self.capabilities().lease().unwrap_or_default()
    }

    /// Opens a subscription.
    pub(super) async fn open(&self) -> Result<Reader<H>, Violation> {
        let opening = self.source.open(&self.connection);
        let (fetch, settle) = within(self.harness.deadline(), "open", opening).await?;
        Ok(Reader {
            fetch,
            settle,
            deadline: self.deadline(),
            quiet: self.harness.quiet(),
        })
    }

    /// Publishes, and expects that each message is confirmed.
    pub(super) async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), Violation> {
        within(
            self.harness.deadline(),
            "publish",
            self.connection.publisher().publish(messages),
        )
        .await
    }

    /// Publishes payloads in one call.
    pub(super) async fn publish_all<P: AsRef<[u8]>>(&self, payloads: &[P]) -> Result<(), Violation> {
        let messages: Vec<_> = payloads
            .iter()
            .map(|payload| Outgoing::new(&self.name, payload.as_ref()))
            .collect();
        self.publish(&messages).await
    }

    /// Publishes until it succeeds, over passing errors.
    pub(super) async fn publish_in_the_end(&self, payload: &[u8]) -> Result<(), Violation> {
        let deadline = Instant::now() + self.harness.deadline();
        let publisher = self.connection.publisher();
        while Instant::now() < deadline {
            let messages = [Outgoing::new(&self.name, payload)];
            match timeout_at(deadline, publisher.publish(&messages)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) if !error.first().is_transient() => return Err(failed("publish", &error)),
                Ok(Err(_)) => sleep(BACKOFF).await,
                Err(_) => {}
            }
        }
        let limit = self.harness.deadline();
        Err(Violation::new(format!("no publish succeeded within {limit:?}")))
    }
}

/// An open subscription.
pub(super) struct Reader<H: Harness> {
    pub(super) fetch: FetchOf<H>,
    pub(super) settle: SettleOf<H>,
    pub(super) deadline: Duration,
    pub(super) quiet: Duration,
}

impl<H: Harness> Reader<H> {
    /// Takes at most `room`, at least one.
    pub(super) async fn take(&mut self, room: usize) -> Result<Vec<DeliveryOf<H>>, Violation> {
        let deadline = Instant::now() + self.deadline;
        let mut taken = Vec::new();
        let mut last_error = None;
        // A call that ends at once is ready before its time-out is looked at.
        while taken.is_empty() && Instant::now() < deadline {
            match timeout_at(deadline, self.fetch.fetch(room, &mut taken)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.is_transient() => {
                    last_error = Some(error);
                    sleep(BACKOFF).await;
                }
                Ok(Err(error)) => return Err(failed("fetch", &error)),
                Err(_) => break,
            }
        }
        ensure!(
            !taken.is_empty(),
            "no delivery came within {:?}{}",
            self.deadline,
            and_last(last_error.as_ref()),
        );
        Ok(taken)
    }

    /// Takes one message that the check made come again.
    pub(super) async fn take_again(&mut self, because: &str) -> Result<Vec<DeliveryOf<H>>, Violation> {
        let taken = self.take(1).await;
        taken.map_err(|violation| Violation::new(format!("{because}, and has to come again, but {violation}")))
    }

    /// Takes exactly `count`, in as many calls as it needs.
    pub(super) async fn collect(&mut self, count: usize) -> Result<Vec<DeliveryOf<H>>, Violation> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.take(count - all.len()).await {
                Ok(mut taken) => all.append(&mut taken),
                Err(violation) => {
                    let came = all.len();
                    return Err(Violation::new(format!(
                        "{came} of {count} deliveries came: {violation}"
                    )));
                }
            }
        }
        Ok(all)
    }

    /// Takes and acks until each expected message came, and expects each once.
    pub(super) async fn drain(&mut self, tally: &mut Tally, room: usize) -> Result<(), Violation> {
        while !tally.is_complete() {
            let Ok(deliveries) = self.take(room).await else {
                break;
            };
            tally.add(&deliveries);
            self.ack(deliveries).await?;
        }
        tally.check()
    }

    /// Expects that nothing is delivered for a while.
    pub(super) async fn stays_quiet(&mut self, because: &str) -> Result<(), Violation> {
        self.stays_quiet_for(self.quiet, because).await
    }

    pub(super) async fn stays_quiet_for(&mut self, time: Duration, because: &str) -> Result<(), Violation> {
        let end = Instant::now() + time;
        let mut taken = Vec::new();
        while Instant::now() < end {
            let outcome = timeout_at(end, self.fetch.fetch(1, &mut taken)).await;
            if let Some(delivery) = taken.first() {
                return Err(Violation::new(format!(
                    "{} was delivered (attempt {}), although {because}",
                    preview(delivery.payload()),
                    delivery.attempt(),
                )));
            }
            match outcome {
                Ok(Err(error)) if !error.is_transient() => return Err(failed("fetch", &error)),
                Ok(_) => sleep(BACKOFF).await,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Settles all in one call.
    pub(super) async fn give(&mut self, mut finished: Vec<(ReceiptOf<H>, Verdict)>) -> Result<Settled, Violation> {
        let end = Instant::now() + self.deadline;
        let mut last_error = None;
        while !finished.is_empty() && Instant::now() < end {
            match timeout_at(end, self.settle.settle(&mut finished)).await {
                Ok(Ok(settled)) => {
                    let left = finished.len();
                    ensure!(left == 0, "settle succeeded and left {left} receipts");
                    return Ok(settled);
                }
                Ok(Err(error)) if error.is_transient() => {
                    last_error = Some(error);
                    sleep(BACKOFF).await;
                }
                Ok(Err(error)) => return Err(failed("settle", &error)),
                Err(_) => {}
            }
        }
        ensure!(
            finished.is_empty(),
            "settle did not succeed within {:?}{}",
            self.deadline,
            and_last(last_error.as_ref()),
        );
        Ok(Settled::default())
    }

    /// Gives all of them one verdict, and expects that none is stale.
    pub(super) async fn give_all(&mut self, deliveries: Vec<DeliveryOf<H>>, verdict: Verdict) -> Result<(), Violation> {
        let finished = deliveries
            .into_iter()
            .map(|delivery| (delivery.into_receipt(), verdict.clone()))
            .collect();
        let Settled { stale } = self.give(finished).await?;
        ensure!(stale == 0, "{stale} receipts were counted as stale, and none was");
        Ok(())
    }

    /// Acks, and expects that none is stale.
    pub(super) async fn ack(&mut self, deliveries: Vec<DeliveryOf<H>>) -> Result<(), Violation> {
        self.give_all(deliveries, Verdict::Ack).await
    }

    /// Closes both halves.
    pub(super) async fn close(self) -> Result<(), Violation> {
        within(self.deadline, "close of the fetch half", self.fetch.close()).await?;
        within(self.deadline, "close of the settle half", self.settle.close()).await
    }
}

fn and_last(error: Option<&TransportError>) -> String {
    error.map_or_else(String::new, |error| format!("; the last error was: {error}"))
}

/// An error of a call, as a check reports it.
pub(super) trait CallError: std::fmt::Display {}
impl CallError for TransportError {}
impl CallError for PublishError {}
impl CallError for AppError {}

pub(super) fn failed(call: &str, error: &impl CallError) -> Violation {
    Violation::new(format!("{call} failed: {error}"))
}

/// The outcome of a call that has to succeed within a deadline.
pub(super) async fn within<T, E: CallError>(
    deadline: Duration,
    call: &str,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, Violation> {
    match timeout(deadline, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(call, &error)),
        Err(_) => Err(Violation::new(format!("{call} did not end within {deadline:?}"))),
    }
}

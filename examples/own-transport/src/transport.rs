//! The transport: the traits of `ruststream::transport`, for the server of this crate.
//!
//! Three decisions carry it. Each transport has to take them anew:
//!
//! - **Who owns a message in hand?** Here the connection that fetched it. So a subscription has a connection of its own to
//!   fetch, which lives until the last receipt is settled, and a second one to settle, whose loss loses nothing.
//! - **What names a delivery?** A number the server gives to each hand-out, never twice. A receipt that comes too late names a
//!   delivery that is over, so it can settle nothing of a later one.
//! - **When is a call in doubt?** When it was sent and the answer did not come. A settle is simply sent again. A publish is
//!   not: its caller is told, since only the caller knows whether a second copy does harm.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use ruststream::message::Outgoing;
use ruststream::transport::{
    Broker, Capabilities, Connection, ErrorKind, Fetch, Publish, PublishError, Settle, Settled, Source, TransportError,
    Verdict,
};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::delivery::{QueueDelivery, decode, encode};
use crate::error;
use crate::wire::{self, Link};

// ---- Broker: settings, and nothing live. -----------------------------------------------------------------------------

/// The address of a queue server, and how long it may take to answer.
#[derive(Debug, Clone)]
pub struct QueueBroker {
    pub(crate) address: Arc<str>,
    pub(crate) deadline: Duration,
}

impl QueueBroker {
    /// The server at `address`, as in `127.0.0.1:7711`.
    pub fn new(address: impl Into<Arc<str>>) -> Self {
        Self {
            address: address.into(),
            deadline: Duration::from_secs(5),
        }
    }

    /// Sets how long the server may take to answer before the connection counts as lost; 5 s by default.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// A fresh link to a server that has proven to be one. TCP connects to anything; only a greeting tells who is there.
    async fn link(&self) -> Result<Link, TransportError> {
        let greeted = async {
            let mut link = Link::new(TcpStream::connect(&*self.address).await?)?;
            link.send(&[wire::HELLO]);
            let is_ours = link.frame().await? == wire::GREETING;
            is_ours.then_some(link).ok_or_else(|| io::ErrorKind::InvalidData.into())
        };
        timeout(self.deadline, greeted)
            .await
            .map_err(|_| error::late(self))?
            .map_err(|error| error::broken(self, error))
    }
}

impl Broker for QueueBroker {
    type Connection = QueueConnection;
    type Source = QueueSource;

    fn label(&self) -> String {
        format!("queue server {}", self.address)
    }

    fn source(&self, name: &str) -> QueueSource {
        QueueSource { name: name.to_owned() }
    }

    async fn connect(&self) -> Result<QueueConnection, TransportError> {
        let client = Client::new(self.clone());
        client.call(&[wire::HELLO]).await?;
        Ok(QueueConnection { client })
    }
}

// ---- Connection: what publishers share. It outlives every link under it. ---------------------------------------------

/// Asks the server, one request at a time, over a link that is made anew when the last one broke.
#[derive(Clone)]
struct Client {
    broker: QueueBroker,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    link: tokio::sync::Mutex<Option<Link>>,
    closed: AtomicBool,
}

impl Client {
    fn new(broker: QueueBroker) -> Self {
        let shared = Arc::default();
        Self { broker, shared }
    }

    async fn call(&self, request: &[u8]) -> Result<Bytes, TransportError> {
        let answered = async {
            let mut kept = self.shared.link.lock().await;
            if self.shared.closed.load(Ordering::Relaxed) {
                return Err(TransportError::new(
                    ErrorKind::Closed,
                    "the connection to the queue server was closed",
                ));
            }
            // Taken out and put back only when the answer is here: a call that fails or is dropped halfway takes the link with
            // it, and no later call can mistake a late answer for its own.
            let mut link = match kept.take().filter(Link::is_quiet) {
                Some(link) => link,
                None => self.broker.link().await?,
            };
            link.send(request);
            let answer = link.frame().await.map_err(|error| error::broken(&self.broker, error))?;
            *kept = Some(link);
            Ok(answer)
        };
        // No word of TCP that the link stands is trusted: whoever does not answer in time is gone.
        timeout(self.broker.deadline, answered)
            .await
            .map_err(|_| error::late(&self.broker))?
    }

    async fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        if let Ok(mut kept) = timeout(self.broker.deadline, self.shared.link.lock()).await {
            *kept = None;
        }
    }
}

/// A connection to a queue server.
pub struct QueueConnection {
    client: Client,
}

impl Connection for QueueConnection {
    type Publisher = QueuePublisher;

    fn publisher(&self) -> QueuePublisher {
        QueuePublisher {
            client: self.client.clone(),
        }
    }

    async fn ping(&self) -> Result<(), TransportError> {
        self.client.call(&[wire::HELLO]).await.map(drop)
    }

    async fn close(&self) {
        self.client.close().await;
    }
}

// ---- Publish: done when the server has stored it. --------------------------------------------------------------------

/// Publishes to a queue server.
#[derive(Clone)]
pub struct QueuePublisher {
    client: Client,
}

impl Publish for QueuePublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let mut failures = Vec::new();
        let mut entries = Vec::new();
        for (position, message) in messages.iter().enumerate() {
            match encode(message) {
                Ok(entry) => entries.push((position, entry)),
                Err(error) => failures.push((position, error)),
            }
        }
        let mut rest = &entries[..];
        while !rest.is_empty() {
            let mut request = vec![wire::PUBLISH];
            let mut count = 0;
            while count < rest.len() && request.len() < wire::GROUP_BYTES {
                request.extend_from_slice(&rest[count].1);
                count += 1;
            }
            if let Err(error) = self.client.call(&request).await {
                // Nothing after a failed group is sent, so that what was stored is in order.
                let again = || TransportError::new(error.kind(), error.to_string());
                failures.extend(rest.iter().map(|(position, _)| (*position, again())));
                break;
            }
            rest = &rest[count..];
        }
        PublishError::some(failures).map_or(Ok(()), Err)
    }
}

// ---- Source: what to read. It opens into two halves that do not wait for each other. ---------------------------------

/// A queue by name. The server makes it when it is first used.
#[derive(Debug)]
pub struct QueueSource {
    name: String,
}

impl Source for QueueSource {
    type Connection = QueueConnection;
    type Fetch = QueueFetch;
    type Settle = QueueSettle;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        // Attempts are counted by the server. Delays and dead letters are not its business, so the runtime supplies both; a
        // lease is not needed, since a process that dies takes its connection with it.
        Capabilities::none().with_attempts()
    }

    fn check(&self) -> Result<(), TransportError> {
        error::check_name(&self.name)
    }

    async fn open(&self, connection: &QueueConnection) -> Result<(QueueFetch, QueueSettle), TransportError> {
        self.check()?;
        let broker = &connection.client.broker;
        let owner = Owner::default();
        let mut fetch = QueueFetch {
            broker: broker.clone(),
            queue: self.name.clone(),
            link: None,
            answer_due: None,
            taken: VecDeque::new(),
            owner: owner.clone(),
        };
        fetch.recover().await?;
        let settle = QueueSettle {
            client: Client::new(broker.clone()),
            owner,
        };
        Ok((fetch, settle))
    }
}

/// Where the fetching half leaves its link when it closes: what it has handed out lives as long as the link does, and may be
/// settled still.
type Owner = Arc<Mutex<Option<Link>>>;

// ---- Fetch: many a call, and safe to drop at any moment. -------------------------------------------------------------

/// The half that takes deliveries.
///
/// A fetch is dropped whenever the runtime has something more urgent to do. So nothing that matters lives in the future: the
/// link with its half-read frame, the request that waits for its answer, and what was taken and found no room, are all here.
pub struct QueueFetch {
    broker: QueueBroker,
    queue: String,
    link: Option<Link>,
    /// When the answer to the request on the link has to be here, where one is out.
    answer_due: Option<Instant>,
    taken: VecDeque<QueueDelivery>,
    owner: Owner,
}

impl Fetch for QueueFetch {
    type Delivery = QueueDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<QueueDelivery>) -> Result<(), TransportError> {
        while self.taken.is_empty() {
            if let Err(error) = self.take(room).await {
                // The server gives back what this link had in hand; receipts that are out settle nothing any more.
                self.link = None;
                self.answer_due = None;
                return Err(error);
            }
        }
        // More than `room` where the answer is to an earlier call that asked for more.
        let count = room.min(self.taken.len());
        into.extend(self.taken.drain(..count));
        Ok(())
    }

    async fn recover(&mut self) -> Result<(), TransportError> {
        if self.link.is_none() {
            self.link = Some(self.broker.link().await?);
        }
        Ok(())
    }

    async fn close(mut self) -> Result<(), TransportError> {
        let Some(mut link) = self.link.take() else {
            return Ok(());
        };
        let given_back = async {
            if self.answer_due.is_some() {
                // The server still waits for messages. Any further request ends that, so an empty one will do.
                link.send(&[wire::SETTLE]);
                self.taken = decode(link.frame().await?)?;
                link.frame().await?;
            }
            let mut request = vec![wire::SETTLE];
            for delivery in self.taken.drain(..) {
                request.put_u64_le(delivery.receipt);
                request.put_u8(wire::RELEASE);
            }
            link.send(&request);
            link.frame().await
        };
        timeout(self.broker.deadline, given_back)
            .await
            .map_err(|_| error::late(&self.broker))?
            .map_err(|error| error::broken(&self.broker, error))?;
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(link);
        Ok(())
    }
}

impl QueueFetch {
    /// Asks for messages, unless the question is out already, and waits for the answer.
    async fn take(&mut self, room: usize) -> Result<(), TransportError> {
        self.recover().await?;
        let Some(link) = &mut self.link else { return Ok(()) };
        let deadline = self.broker.deadline;
        let due = self.answer_due.get_or_insert_with(|| {
            // The server answers after one deadline even if it has nothing: a silence of two means that it is gone.
            let mut request = vec![wire::FETCH];
            request.put_u32_le(u32::try_from(room).unwrap_or(u32::MAX));
            request.put_u32_le(u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX));
            wire::put_part(&mut request, self.queue.as_bytes());
            link.send(&request);
            Instant::now() + deadline * 2
        });
        if *due < Instant::now() {
            // It passed while nobody fetched, which is no fault of the server: the answer lies here and wants to be read.
            *due = Instant::now() + deadline;
        }
        let answer = timeout_at(*due, link.frame())
            .await
            .map_err(|_| error::late(&self.broker))?;
        self.answer_due = None;
        self.taken = answer
            .and_then(decode)
            .map_err(|error| error::broken(&self.broker, error))?;
        Ok(())
    }
}

// ---- Settle: all that finished, in one round trip. -------------------------------------------------------------------

/// The half that gives receipts back.
pub struct QueueSettle {
    client: Client,
    owner: Owner,
}

impl Settle for QueueSettle {
    type Receipt = u64;

    async fn settle(&mut self, finished: &mut Vec<(u64, Verdict)>) -> Result<Settled, TransportError> {
        let mut request = vec![wire::SETTLE];
        for (receipt, verdict) in &*finished {
            request.put_u64_le(*receipt);
            match verdict {
                Verdict::Ack => request.put_u8(wire::ACK),
                Verdict::Release => request.put_u8(wire::RELEASE),
                Verdict::Return { attempts } => {
                    request.put_u8(wire::RETURN);
                    request.put_u32_le(*attempts);
                }
                // `Retry`, and whatever this server has no word for: handed out again, never lost.
                _ => request.put_u8(wire::RETRY),
            }
        }
        // After an error all of it is still in `finished` and comes again. Where only the answer was lost, the second time
        // finds those deliveries over and counts them as stale: harmless.
        let mut answer = self.client.call(&request).await?;
        let stale = answer
            .try_get_u32_le()
            .map_err(|error| error::broken(&self.client.broker, error.into()))?;
        finished.clear();
        Ok(Settled { stale: stale as usize })
    }

    async fn close(self) -> Result<(), TransportError> {
        self.client.close().await;
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }
}

//! One AMQP connection that is made anew whenever it is lost.
//!
//! lapin can recover by itself, but then no one outside knows which deliveries and confirms belong to which link. So its recovery
//! stays off, and each link here is a connection of its own, with a number that is used once.

use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream as StdTcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_compat::CompatExt;
use futures_util::StreamExt;
use lapin::tcp::{AsyncTcpStream, OwnedIdentity, OwnedTLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Channel, Connection, ConnectionProperties, Event};
use ruststream::transport::{ErrorKind, TransportError};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::error;
use crate::settings::{Settings, Tls};

/// How long the failure of one attempt to connect answers for those that ask right after it, so that many waiting publishers do
/// not each wait for an attempt of their own.
const FRESH_FAILURE: Duration = Duration::from_millis(100);

/// Numbers that no two links of this process share.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that was not used before in this process.
pub(crate) fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What a link is for. Publishing and consuming have links of their own: a server short of memory stops reading from those that
/// publish, and acks must still reach it then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Publishing,
    Consuming,
}

impl Purpose {
    const fn word(self) -> &'static str {
        match self {
            Self::Publishing => "publishing",
            Self::Consuming => "consuming",
        }
    }
}

/// A connection that outlives its losses.
pub(crate) struct Link {
    pub(crate) settings: Arc<Settings>,
    purpose: Purpose,
    state: tokio::sync::Mutex<State>,
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    /// The last failure to connect, and when.
    failure: Option<(Instant, ErrorKind, String)>,
}

impl Link {
    pub(crate) fn new(settings: Arc<Settings>, purpose: Purpose) -> Self {
        Self {
            settings,
            purpose,
            state: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// The connection that stands, or a new one.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, TransportError> {
        let deadline = self.settings.connect_timeout;
        let late = || error::late(&format!("connecting to {}", self.settings.label), deadline);
        // Whoever waits longer than an attempt takes has waited for someone else's.
        let mut state = timeout(deadline, self.state.lock()).await.map_err(|_| late())?;
        if self.closed.load(Ordering::Relaxed) {
            return Err(error::closed(&self.settings.label));
        }
        if let Some(live) = &state.live {
            if live.stands() {
                return Ok(live.clone());
            }
            live.kill();
            state.live = None;
        }
        if let Some((when, kind, text)) = &state.failure
            && when.elapsed() < FRESH_FAILURE
        {
            return Err(TransportError::new(*kind, text.clone()));
        }
        match self.connect().await {
            Ok(live) => {
                let live = Arc::new(live);
                state.failure = None;
                state.live = Some(live.clone());
                Ok(live)
            }
            Err(error) => {
                state.failure = Some((Instant::now(), error.kind(), error.to_string()));
                Err(error)
            }
        }
    }

    /// Ends a connection that does not answer; the next call makes another.
    pub(crate) fn discard(&self, live: &Live) {
        tracing::warn!(server = %self.settings.label, purpose = self.purpose.word(), "the server does not answer; the link is made anew");
        live.kill();
    }

    /// A fresh channel on the connection.
    pub(crate) async fn channel(&self, live: &Live) -> Result<Channel, TransportError> {
        self.call(live, "opening a channel", live.connection.create_channel())
            .await
    }

    /// One call to the server within the deadline of calls. A server that does not answer in time has lost its link.
    pub(crate) async fn call<T>(
        &self,
        live: &Live,
        what: &str,
        call: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, TransportError> {
        let deadline = self.settings.call_timeout;
        let what = || format!("{what} on {}", self.settings.label);
        match timeout(deadline, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error::from_lapin(error, &what())),
            Err(_) => {
                self.discard(live);
                Err(error::late(&what(), deadline))
            }
        }
    }

    /// Ends it for good.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let closing = async {
            if let Some(live) = self.state.lock().await.live.take() {
                let _ = live.connection.close(200, "closed by the application".into()).await;
                live.kill();
            }
        };
        let _ = timeout(self.settings.call_timeout, closing).await;
    }

    async fn connect(&self) -> Result<Live, TransportError> {
        let Settings { label, heartbeat, .. } = &*self.settings;
        let invalid = |text: &String| TransportError::new(ErrorKind::Invalid, text.clone());
        let mut uri = self.settings.uri.as_ref().map_err(invalid)?.clone();
        uri.query.heartbeat = Some(u16::try_from(heartbeat.as_secs()).unwrap_or(u16::MAX));
        let name = format!("{} ({})", self.settings.connection_name, self.purpose.word());
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let socket = Arc::new(Socket::default());
        let runtime = lapin::runtime::default_runtime()
            .map_err(|error| error::from_lapin(error, &format!("connecting to {label}")))?;
        let connector = {
            let (socket, tls) = (socket.clone(), self.settings.tls.clone());
            async move |uri: AMQPUri, _| dial(&uri, &socket, &tls).await.map_err(lapin::Error::from)
        };
        let opening = Connection::connector(uri, runtime, connector, properties);
        let deadline = self.settings.connect_timeout;
        let what = format!("connecting to {label}");
        let connection = match timeout(deadline, opening).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(refused(error, &what)),
            Err(_) => {
                // Its thread would wait for as long as the server keeps silent.
                socket.kill();
                return Err(error::late(&what, deadline));
            }
        };
        let live = Live::new(connection, socket, label.clone());
        let topology = &self.settings.topology;
        if self.purpose == Purpose::Publishing && !topology.is_empty() {
            let channel = self.channel(&live).await?;
            topology.declare(self, &live, &channel).await?;
        }
        Ok(live)
    }
}

/// Tells what a connection that was not made says of the settings.
fn refused(error: lapin::Error, what: &str) -> TransportError {
    let denied = matches!(error.kind(), lapin::ErrorKind::ProtocolError(amqp) if amqp.get_id() == 403);
    if denied {
        let text = format!("{what}: user or password are not accepted; correct the URL");
        return TransportError::new(ErrorKind::Denied, text).with_cause(error);
    }
    error::from_lapin(error, what)
}

async fn dial(
    uri: &AMQPUri,
    socket: &Socket,
    tls: &Tls,
) -> io::Result<AsyncTcpStream<async_compat::Compat<TcpStream>>> {
    let stream = TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).await?;
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    socket.hold(stream.try_clone()?)?;
    let stream = AsyncTcpStream::Plain(TcpStream::from_std(stream)?.compat());
    match uri.scheme {
        AMQPScheme::AMQP => Ok(stream),
        AMQPScheme::AMQPS => {
            let identity = tls.identity.clone();
            let config = OwnedTLSConfig {
                identity: identity.map(|(pem, key)| OwnedIdentity::PKCS8 { pem, key }),
                cert_chain: tls.trusted.clone(),
            };
            stream.into_tls(&uri.authority.host, config.as_ref()).await
        }
    }
}

/// A second handle on the socket under a connection: lapin ends a link only when the server answers or the socket ends.
#[derive(Default)]
struct Socket(Mutex<Held>);

#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    Stream(StdTcpStream),
    Killed,
}

impl Socket {
    fn hold(&self, stream: StdTcpStream) -> io::Result<()> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*held, Held::Killed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        *held = Held::Stream(stream);
        Ok(())
    }

    fn kill(&self) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Held::Stream(stream) = &*held {
            // One that is closed already needs no more.
            let _ = stream.shutdown(Shutdown::Both);
        }
        *held = Held::Killed;
    }
}

/// One connection, from its making to its loss.
pub(crate) struct Live {
    pub(crate) connection: Connection,
    socket: Arc<Socket>,
    blocked: watch::Receiver<Option<String>>,
    watching: AbortHandle,
    killed: AtomicBool,
}

impl Live {
    fn new(connection: Connection, socket: Arc<Socket>, label: Arc<str>) -> Self {
        let (tell, blocked) = watch::channel(None);
        let mut events = Box::pin(connection.events_listener());
        let watching = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => {
                        tracing::warn!(server = %label, reason, "the server takes no publishes for now");
                        tell.send_replace(Some(reason));
                    }
                    Event::ConnectionUnblocked => {
                        tracing::info!(server = %label, "the server takes publishes again");
                        tell.send_replace(None);
                    }
                    _ => {}
                }
            }
        })
        .abort_handle();
        Self {
            connection,
            socket,
            blocked,
            watching,
            killed: AtomicBool::new(false),
        }
    }

    pub(crate) fn stands(&self) -> bool {
        !self.killed.load(Ordering::Relaxed) && self.connection.status().connected()
    }

    /// Why the server takes no publishes, while that is so; see <https://www.rabbitmq.com/docs/connection-blocked>.
    pub(crate) fn blocked(&self) -> Option<String> {
        self.blocked.borrow().clone()
    }

    /// Waits until the server takes publishes.
    pub(crate) async fn unblocked(&self) {
        let mut blocked = self.blocked.clone();
        // The teller ends with the connection, and then nothing is blocked any more.
        let _ = blocked.wait_for(Option::is_none).await;
    }

    fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        self.socket.kill();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("stands", &self.stands())
            .finish_non_exhaustive()
    }
}

//! One link to one server: a fred client that is never asked to mend itself.
//!
//! fred can reconnect by itself, and says whether it is connected; both have been wrong in ways that hang for ever
//! (fred.rs issues #307, #315, #363). So each client here has one connection and no policy to renew it, each call has a deadline of
//! ours, and a client that failed once is dropped with its socket.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::interfaces::{ClientLike, EventInterface as _, PubsubInterface as _, Resp3Frame as Frame};
use fred::types::config::{Config, ConnectionConfig, PerformanceConfig, ServerConfig};
use fred::types::{ClusterHash, CustomCommand, Message, RespVersion, Value};
use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use ruststream::transport::ErrorKind;
use tokio::sync::broadcast::Receiver as BroadcastReceiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::beside::Kind;
use crate::error::Failure;
use crate::sending::Sending;
use crate::topology::Node;
use crate::watchdog::Watchdog;

/// One command and its arguments.
pub(crate) type Command = (&'static str, Vec<Value>);

/// What a link is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// Commands alone.
    Commands,
    /// To listen to channels: so many messages wait on it before the oldest are dropped.
    Channels(usize),
    /// Commands, while it listens.
    Both,
}

impl Purpose {
    /// fred reads RESP2 in half the time of RESP3; only RESP3 allows commands on a link that listens.
    fn version(self) -> RespVersion {
        match self {
            Self::Commands | Self::Channels(_) => RespVersion::RESP2,
            Self::Both => RespVersion::RESP3,
        }
    }

    fn buffer(self) -> usize {
        match self {
            // fred tells of itself by channels of the same size, and two words may come at once.
            Self::Commands => 32,
            Self::Channels(buffer) => buffer,
            // A bell that rings while it rings is heard once.
            Self::Both => 64,
        }
    }
}

/// One connection. Dropping it closes the socket at once.
pub(crate) struct Link {
    client: Client,
    driver: AbortHandle,
    /// Whether fred's task has ended. A command that reached it as it ended is never answered.
    ended: watch::Receiver<bool>,
    node: Node,
    broken: AtomicBool,
    /// The deadline of what is [sent](Self::send).
    watchdog: Watchdog,
    /// What the server calls this connection, to unblock it from another.
    id: i64,
}

impl Link {
    /// Connects to `node`, within `most`. What is [sent](Self::send) is to be answered within `deadline`.
    pub(crate) async fn open(
        config: &Config,
        node: &Node,
        most: Duration,
        deadline: Duration,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let config = Config {
            server: ServerConfig::new_centralized(node.host(), node.port()),
            version: purpose.version(),
            fail_fast: true,
            ..config.clone()
        };
        let connection = ConnectionConfig {
            connection_timeout: most,
            internal_command_timeout: most,
            max_command_attempts: 1,
            // `TCP_NODELAY` stays off: a lone command leaves at once without it too, and what tasks send while others are on their way goes
            // in one packet. A third of the client's time, and half of the server's, for eight tasks that publish.
            ..ConnectionConfig::default()
        };
        let performance = PerformanceConfig {
            default_command_timeout: Duration::ZERO,
            broadcast_channel_capacity: purpose.buffer(),
            ..PerformanceConfig::default()
        };
        let client = Client::new(config, Some(performance), Some(connection), None);
        // fred asks whether it is connected, and listens then: a connection that is made in between is never heard of. So it
        // listens first.
        let waiting = client.clone();
        let mut waiting = Box::pin(async move { waiting.wait_for_connect().await });
        poll_fn(|context| {
            let _ = waiting.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
        let mut driver = client.connect();
        let (over, ended) = watch::channel(false);
        let abort = driver.abort_handle();
        let watchdog = Watchdog::default();
        let bark = watchdog.clone().bark(deadline);
        tokio::spawn(async move {
            tokio::select! {
                _ = &mut driver => {}
                () = bark => driver.abort(),
            }
            let _ = over.send(true);
        });
        // Made before the first wait, so that a call which is dropped closes the socket too.
        let mut link = Self {
            client,
            driver: abort,
            ended,
            node: node.clone(),
            broken: AtomicBool::new(false),
            watchdog,
            id: 0,
        };
        match timeout(most, waiting).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Failure::from_fred(error, node)),
            Err(_) => {
                return Err(Failure::link_lost(
                    ErrorKind::Timeout,
                    format!("{node} cannot be reached: no connection within {most:?}"),
                ));
            }
        }
        let id = link.call("CLIENT", vec!["ID".into()], most).await?;
        link.id = crate::reply::number(&id, "CLIENT ID")?;
        Ok(link)
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Whether a call has failed in a way that leaves the connection in doubt.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed) || *self.ended.borrow()
    }

    /// Gives the link up: calls after this make a new one.
    pub(crate) fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Runs one command. Commands of many tasks share round trips.
    pub(crate) async fn call(
        &self,
        command: &'static str,
        arguments: Vec<Value>,
        deadline: Duration,
    ) -> Result<Frame, Failure> {
        let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        // fred's future has some 20 KiB, which would be part of each future that awaits a call.
        let call = Box::pin(self.client.custom_raw(command, arguments));
        let answer = self.within(deadline, call).await?;
        match answer {
            Frame::SimpleError { data, .. } => Err(Failure::from_server(&data, &self.node)),
            Frame::BlobError { data, .. } => Err(Failure::from_server(&String::from_utf8_lossy(&data), &self.node)),
            answer => Ok(answer),
        }
    }

    /// Sends a message. Those of many tasks, or of one that does not wait in between, share round trips.
    pub(crate) async fn send(&self, sending: Sending) -> Result<(), Failure> {
        let _watched = self.watchdog.watch();
        // Of a pipeline fred's future is small; what is in it only joins the others, and never waits.
        let pipeline = self.client.pipeline();
        if let Some(Err(error)) = sending.put(&pipeline).now_or_never() {
            return Err(Failure::from_fred(error, &self.node));
        }
        let mut ended = self.ended.clone();
        let ended = pin!(ended.wait_for(|ended| *ended));
        // Not tokio's `select!`, which may put the first poll off: many that are sent without waiting keep their order.
        match select(pin!(pipeline.last::<()>()), ended).await {
            // What is overdue is let go of, which fred calls a closed channel.
            Either::Left((Err(_), _)) if self.watchdog.has_barked() => Err(self.cut()),
            Either::Left((answer, _)) => answer.map_err(|error| self.judged(error)),
            Either::Right(_) => Err(self.cut()),
        }
    }

    fn cut(&self) -> Failure {
        self.give_up();
        if self.watchdog.has_barked() {
            return Failure::link_lost(
                ErrorKind::Timeout,
                format!("{} did not answer in time; a new link to it is made", self.node),
            );
        }
        Failure::link_lost(
            ErrorKind::Unavailable,
            format!("the link to {} was cut; a new one is made", self.node),
        )
    }

    /// Runs commands one behind the other, nothing of other tasks in between, in one round trip.
    pub(crate) async fn pipeline(
        &self,
        commands: Vec<Command>,
        deadline: Duration,
    ) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let count = commands.len();
        let pipeline = self.client.pipeline();
        for (command, arguments) in commands {
            let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
            // It only joins the others, and never waits.
            let queued: Option<Result<Value, _>> = pipeline.custom(command, arguments).now_or_never();
            if let Some(Err(error)) = queued {
                return Err(Failure::from_fred(error, &self.node));
            }
        }
        let all = Box::pin(async { Ok(pipeline.try_all::<Value>().await) });
        let answers = self.within(deadline, all).await?;
        if answers.len() != count {
            // Fewer answers than commands: the connection ended in between.
            let error = answers.into_iter().find_map(Result::err);
            self.give_up();
            return Err(error.map_or_else(
                || Failure::strange("a pipeline"),
                |error| Failure::from_fred(error, &self.node),
            ));
        }
        let answers = answers
            .into_iter()
            .map(|answer| answer.map_err(|error| self.judged(error)))
            .collect();
        Ok(answers)
    }

    /// What is heard on this link from now on.
    pub(crate) fn hears(&self) -> Heard {
        Heard {
            messages: self.client.message_rx(),
            ended: self.ended.clone(),
            bell: None,
        }
    }

    /// Subscribes, and returns when the server has heard of it.
    pub(crate) async fn subscribe(&self, kind: Kind, name: &str, most: Duration) -> Result<(), Failure> {
        let client = &self.client;
        let name = name.to_owned();
        match kind {
            Kind::Pattern => self.within(most, Box::pin(client.psubscribe(name))).await?,
            Kind::Shard => self.within(most, Box::pin(client.ssubscribe(name))).await?,
            _ => self.within(most, Box::pin(client.subscribe(name))).await?,
        }
        // fred does not wait for the server's word; what is asked after it is answered after it.
        self.call("PING", Vec::new(), most).await.map(drop)
    }

    /// Listens to a channel on which others ring.
    pub(crate) async fn listen(&self, bell: &str, most: Duration) -> Result<Heard, Failure> {
        let mut heard = self.hears();
        self.subscribe(Kind::Channel, bell, most).await?;
        heard.expect_bell(bell);
        Ok(heard)
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<T, fred::error::Error>>,
    ) -> Result<T, Failure> {
        let mut ended = self.ended.clone();
        let call = async {
            tokio::select! {
                biased;
                answer = call => Some(answer),
                _ = ended.wait_for(|ended| *ended) => None,
            }
        };
        match timeout(deadline, call).await {
            Ok(Some(Ok(answer))) => Ok(answer),
            Ok(Some(Err(error))) => Err(self.judged(error)),
            Ok(None) => Err(self.cut()),
            Err(_) => {
                self.give_up();
                Err(Failure::link_lost(
                    ErrorKind::Timeout,
                    format!(
                        "{} did not answer within {deadline:?}; a new link to it is made",
                        self.node
                    ),
                ))
            }
        }
    }

    fn judged(&self, error: fred::error::Error) -> Failure {
        let failure = Failure::from_fred(error, &self.node);
        if failure.is_link_lost() {
            self.give_up();
        }
        failure
    }
}

/// What comes by the channels that a link has subscribed to.
pub(crate) struct Heard {
    messages: BroadcastReceiver<Message>,
    ended: watch::Receiver<bool>,
    bell: Option<String>,
}

/// One thing that was heard.
pub(crate) enum News {
    /// A message of a channel.
    Message { channel: Str, value: Bytes },
    /// Someone keeps something back.
    Bell,
    /// So many messages were dropped, since they were not taken soon enough.
    Dropped(u64),
    /// The link has ended.
    Over,
}

impl Heard {
    /// Messages of this channel are no messages.
    pub(crate) fn expect_bell(&mut self, bell: &str) {
        self.bell = Some(bell.to_owned());
    }

    pub(crate) async fn next(&mut self) -> News {
        let heard = tokio::select! {
            biased;
            heard = self.messages.recv() => heard,
            _ = self.ended.wait_for(|ended| *ended) => return News::Over,
        };
        match heard {
            Ok(message) => self.read(message),
            Err(RecvError::Lagged(count)) => News::Dropped(count),
            Err(RecvError::Closed) => News::Over,
        }
    }

    /// What is there already.
    pub(crate) fn try_next(&mut self) -> Option<News> {
        match self.messages.try_recv() {
            Ok(message) => Some(self.read(message)),
            Err(TryRecvError::Lagged(count)) => Some(News::Dropped(count)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }

    /// Waits until someone rings; for ever once the link has ended.
    pub(crate) async fn rung(&mut self) {
        if matches!(self.next().await, News::Over) {
            std::future::pending::<()>().await;
        }
    }

    fn read(&self, message: Message) -> News {
        if self.bell.as_deref().is_some_and(|bell| *message.channel == *bell) {
            return News::Bell;
        }
        let value = match message.value {
            Value::Bytes(value) => value,
            Value::String(text) => text.into_inner(),
            other => other.into_bytes().unwrap_or_default(),
        };
        News::Message {
            channel: message.channel,
            value,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("node", &self.node)
            .field("broken", &self.is_broken())
            .finish_non_exhaustive()
    }
}

//! One link to one server: a fred client that is never asked to mend itself.
//!
//! fred can reconnect by itself, and says whether it is connected; both have been wrong in ways that hang for ever
//! (fred.rs issues #307, #315, #363). So each client here has one connection and no policy to renew it, each call has a deadline of
//! ours, and a client that failed once is dropped with its socket.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::{ClientLike, Resp3Frame as Frame};
use fred::types::config::{Config, ConnectionConfig, PerformanceConfig, ServerConfig, TcpConfig};
use fred::types::{ClusterHash, CustomCommand, RespVersion, Value};
use futures_util::FutureExt as _;
use ruststream::transport::ErrorKind;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::error::Failure;
use crate::topology::Node;

/// One connection. Dropping it closes the socket at once.
pub(crate) struct Link {
    client: Client,
    driver: AbortHandle,
    /// Whether fred's task has ended. A command that reached it as it ended is never answered.
    ended: watch::Receiver<bool>,
    node: Node,
    broken: AtomicBool,
    /// What the server calls this connection, to unblock it from another.
    id: i64,
}

impl Link {
    /// Connects to `node`, within `most`.
    pub(crate) async fn open(config: &Config, node: &Node, most: Duration) -> Result<Self, Failure> {
        let config = Config {
            server: ServerConfig::new_centralized(node.host(), node.port()),
            version: RespVersion::RESP3,
            fail_fast: true,
            ..config.clone()
        };
        let connection = ConnectionConfig {
            connection_timeout: most,
            internal_command_timeout: most,
            max_command_attempts: 1,
            tcp: TcpConfig {
                nodelay: Some(true),
                ..TcpConfig::default()
            },
            ..ConnectionConfig::default()
        };
        let performance = PerformanceConfig {
            default_command_timeout: Duration::ZERO,
            ..PerformanceConfig::default()
        };
        let client = Client::new(config, Some(performance), Some(connection), None);
        let driver = client.connect();
        let (over, ended) = watch::channel(false);
        let abort = driver.abort_handle();
        tokio::spawn(async move {
            let _ = driver.await;
            let _ = over.send(true);
        });
        // Made before the first wait, so that a call which is dropped closes the socket too.
        let mut link = Self {
            client,
            driver: abort,
            ended,
            node: node.clone(),
            broken: AtomicBool::new(false),
            id: 0,
        };
        match timeout(most, Box::pin(link.client.wait_for_connect())).await {
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

    /// Runs commands one behind the other, nothing of other tasks in between, in one round trip.
    pub(crate) async fn pipeline(
        &self,
        commands: Vec<(&'static str, Vec<Value>)>,
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
            Ok(None) => {
                self.give_up();
                Err(Failure::link_lost(
                    ErrorKind::Unavailable,
                    format!("the link to {} was cut; a new one is made", self.node),
                ))
            }
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

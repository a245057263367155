//! The settings of a server, a cluster, or a primary behind sentinels.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fred::types::config::{Config, ServerConfig};
use ruststream::transport::{Broker, ErrorKind, TransportError};

use crate::connection::RedisConnection;
use crate::credentials::{CredentialProvider, Provider};
use crate::names::check_group;
use crate::source::{Form, RedisSource};
use crate::topology::{Node, Topology};

/// The consumer group unless another is named.
const DEFAULT_GROUP: &str = "ruststream";

/// The payload limit unless another is set.
const DEFAULT_MAX_PAYLOAD: usize = 64 * 1024 * 1024;

/// Redis takes no value of more than 512 MiB unless it is told to (`proto-max-bulk-len`).
const LARGEST_MAX_PAYLOAD: usize = 500 * 1024 * 1024;

/// A Redis or Valkey server, a cluster of them, or a primary behind sentinels. Redis 7.0, Valkey 7.2 or newer.
///
/// Nothing happens until it is connected to; what is wrong with a URL is told then.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::transport::Broker;
/// use ruststream_fred::RedisBroker;
///
/// let broker = RedisBroker::standalone("redis://user:secret@localhost:6379/2")
///     .group("billing")
///     .command_timeout(Duration::from_secs(2));
/// assert_eq!(broker.label(), "redis localhost:6379");
/// ```
#[derive(Clone)]
pub struct RedisBroker {
    settings: Result<Settings, String>,
}

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) label: String,
    pub(crate) topology: Topology,
    /// Of the servers: credentials, database, TLS.
    pub(crate) config: Config,
    /// Of the sentinels.
    pub(crate) sentinel_config: Config,
    /// Whether links are to be over TLS.
    #[cfg_attr(
        not(feature = "tls"),
        expect(dead_code, reason = "a URL that asks for TLS is refused without the feature")
    )]
    is_secure: bool,
    #[cfg(feature = "tls")]
    tls: crate::tls::Tls,
    pub(crate) credentials: Option<Provider>,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_payload: usize,
    pub(crate) group: Arc<str>,
    pub(crate) form: Form,
}

impl RedisBroker {
    /// One server: `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS (feature `tls`).
    pub fn standalone(url: impl AsRef<str>) -> Self {
        let settings = read(&[url.as_ref()]).and_then(
            |Read {
                 nodes,
                 config,
                 is_secure,
             }| {
                let node = nodes.into_iter().next().ok_or("no server is named")?;
                Ok(Settings::new(
                    format!("redis {node}"),
                    Topology::Standalone(node),
                    config,
                    is_secure,
                ))
            },
        );
        Self { settings }
    }

    /// A cluster, some of whose nodes these URLs name: those that answer name the others. Credentials and TLS are those of the
    /// first URL.
    pub fn cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Self {
        let urls: Vec<U> = urls.into_iter().collect();
        let urls: Vec<&str> = urls.iter().map(AsRef::as_ref).collect();
        let settings = read(&urls).and_then(
            |Read {
                 nodes,
                 config,
                 is_secure,
             }| {
                if config.database.is_some_and(|database| database != 0) {
                    return Err("a cluster has only database 0: leave the number out".to_owned());
                }
                let label = format!("redis cluster of {}", listed(&nodes));
                Ok(Settings::new(label, Topology::Cluster(nodes), config, is_secure))
            },
        );
        Self { settings }
    }

    /// The primary that sentinels know as `service`; the URLs are those of the sentinels, without credentials. The servers'
    /// own are set by [`credentials`](Self::credentials) and [`database`](Self::database).
    pub fn sentinel<U: AsRef<str>>(urls: impl IntoIterator<Item = U>, service: impl Into<String>) -> Self {
        let urls: Vec<U> = urls.into_iter().collect();
        let urls: Vec<&str> = urls.iter().map(AsRef::as_ref).collect();
        let service = service.into();
        let settings = read(&urls).map(|read| {
            let Read {
                nodes: sentinels,
                config: sentinel_config,
                is_secure,
            } = read;
            let label = format!("redis {service} behind sentinels {}", listed(&sentinels));
            // TLS is the same on both; a sentinel has no databases.
            let config = Config {
                username: None,
                password: None,
                ..sentinel_config.clone()
            };
            let topology = Topology::Sentinel { sentinels, service };
            Settings {
                sentinel_config: Config {
                    database: None,
                    ..sentinel_config
                },
                ..Settings::new(label, topology, config, is_secure)
            }
        });
        Self { settings }
    }

    /// Sets the user of the server's ACL and its password, in place of those of the URL.
    pub fn credentials(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        let (user, password) = (user.into(), password.into());
        self.with(|settings| {
            settings.config.username = Some(user);
            settings.config.password = Some(password);
        })
    }

    /// Trusts these certificates, in PEM, besides those that the system trusts: those of whoever signed the servers'. For `rediss://`.
    #[cfg(feature = "tls")]
    pub fn trusted_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        let pem = pem.into();
        self.with(|settings| settings.tls.trusted = Some(pem))
    }

    /// Shows the servers this certificate, with its key; both in PEM. For `rediss://`.
    #[cfg(feature = "tls")]
    pub fn client_certificate(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let identity = (certificate.into(), key.into());
        self.with(|settings| settings.tls.identity = Some(identity))
    }

    /// Sets where credentials come from. It is asked before each link is made, so that a token which expires is a fresh one.
    pub fn credential_provider(self, provider: impl CredentialProvider) -> Self {
        self.with(|settings| settings.credentials = Some(Provider::new(provider)))
    }

    /// Sets the number of the database, 0 unless set. A cluster has only that one.
    pub fn database(mut self, number: u8) -> Self {
        if let Ok(settings) = &mut self.settings {
            settings.config.database = Some(number);
            if number != 0 && matches!(settings.topology, Topology::Cluster(_)) {
                self.settings = Err("a cluster has only database 0: leave the number out".to_owned());
            }
        }
        self
    }

    /// Sets the consumer group of subscriptions by name: `ruststream` unless set. Services that are each to get every message
    /// of a stream need groups of their own.
    pub fn group(mut self, name: impl AsRef<str>) -> Self {
        match check_group(name.as_ref()) {
            Ok(()) => self.with(|settings| settings.group = name.as_ref().into()),
            Err(error) => {
                self.settings = self.settings.and(Err(error.to_string()));
                self
            }
        }
    }

    /// Sets what a name stands for: a [stream](Form::Stream) unless set. It holds for subscriptions by name and for what is published;
    /// a subscription can be given another [source](crate::RedisSource), a publish other [options](crate::RedisPublish).
    pub fn form(self, form: Form) -> Self {
        self.with(|settings| settings.form = form)
    }

    /// Sets how long the server may take to answer a command before the link to it is given up: 3 s unless set.
    pub fn command_timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.command_timeout = timeout.max(Duration::from_millis(1)))
    }

    /// Sets how long a link may take to be made: 3 s unless set.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.connect_timeout = timeout.max(Duration::from_millis(1)))
    }

    /// Sets how large a message may be: payload, headers and key together. 64 MiB unless set, 500 MiB at most.
    ///
    /// A larger one is refused with an error that [says so](TransportError::is_too_large).
    pub fn max_payload(self, bytes: usize) -> Self {
        self.with(|settings| settings.max_payload = bytes.min(LARGEST_MAX_PAYLOAD))
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        if let Ok(settings) = &mut self.settings {
            change(settings);
        }
        self
    }
}

impl Settings {
    fn new(label: String, topology: Topology, config: Config, is_secure: bool) -> Self {
        Self {
            label,
            topology,
            sentinel_config: config.clone(),
            config,
            is_secure,
            #[cfg(feature = "tls")]
            tls: crate::tls::Tls::default(),
            credentials: None,
            command_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(3),
            max_payload: DEFAULT_MAX_PAYLOAD,
            group: DEFAULT_GROUP.into(),
            form: Form::default(),
        }
    }

    /// As it is used: with the settings of TLS, where links are over it.
    #[cfg_attr(
        not(feature = "tls"),
        expect(clippy::unnecessary_wraps, reason = "only certificates can be wrong")
    )]
    fn ready(&self) -> Result<Self, TransportError> {
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS adds something"))]
        let mut ready = self.clone();
        #[cfg(feature = "tls")]
        {
            let invalid = |text| TransportError::new(ErrorKind::Invalid, text);
            if self.is_secure {
                let tls = self.tls.config().map_err(invalid)?;
                ready.config.tls = Some(tls.clone());
                ready.sentinel_config.tls = Some(tls);
            } else if self.tls.is_set() {
                let text = "certificates are given, and the URL asks for no TLS: write rediss:// in place of redis://";
                return Err(invalid(text.to_owned()));
            }
        }
        Ok(ready)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }
}

impl Broker for RedisBroker {
    type Connection = RedisConnection;
    type Source = RedisSource;

    fn label(&self) -> String {
        match &self.settings {
            Ok(settings) => settings.label.clone(),
            Err(_) => "redis, with settings that cannot be used".to_owned(),
        }
    }

    fn source(&self, name: &str) -> RedisSource {
        let form = self.settings.as_ref().map(|settings| settings.form).unwrap_or_default();
        RedisSource::of(form, name)
    }

    fn check(&self) -> Result<(), TransportError> {
        match &self.settings {
            Ok(settings) => settings.ready().map(drop),
            Err(text) => Err(TransportError::new(ErrorKind::Invalid, text.clone())),
        }
    }

    async fn connect(&self) -> Result<RedisConnection, TransportError> {
        match &self.settings {
            Ok(settings) => RedisConnection::open(settings.ready()?).await,
            Err(text) => Err(TransportError::new(ErrorKind::Invalid, text.clone())),
        }
    }
}

impl fmt::Debug for RedisBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBroker")
            .field("label", &self.label())
            .finish_non_exhaustive()
    }
}

/// What URLs say: the servers, and the settings of the first.
struct Read {
    nodes: Vec<Node>,
    config: Config,
    is_secure: bool,
}

fn read(urls: &[&str]) -> Result<Read, String> {
    let mut nodes = Vec::new();
    let mut is_secure = false;
    let mut first = None;
    for url in urls {
        // The URL itself is not told: it may hold a password.
        let advice = "write redis://[user:password@]host[:port][/database]";
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some("redis" | "valkey") => {}
            Some("rediss" | "valkeys") if cfg!(feature = "tls") => {}
            Some("rediss" | "valkeys") => {
                return Err("a URL asks for TLS: it needs the feature `tls` of ruststream-fred".to_owned());
            }
            _ => {
                return Err(format!(
                    "a URL of a Redis server does not begin with redis://; {advice}"
                ));
            }
        }
        // TLS is set up by this crate: see `tls`.
        let plain = match url.split_once("://") {
            Some(("rediss" | "valkeys", rest)) => {
                is_secure |= first.is_none();
                format!("redis://{rest}")
            }
            _ => (*url).to_owned(),
        };
        let config = Config::from_url(&plain)
            .map_err(|error| format!("a URL of a Redis server cannot be used: {}; {advice}", error.details()))?;
        let servers = match &config.server {
            ServerConfig::Centralized { server } => vec![server.clone()],
            ServerConfig::Clustered { hosts, .. } | ServerConfig::Sentinel { hosts, .. } => hosts.clone(),
        };
        for server in servers {
            let node = Node::new(server.host.to_string(), server.port);
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        first.get_or_insert(config);
    }
    let config = first.ok_or("no URL of a Redis server is given: give at least one")?;
    Ok(Read {
        nodes,
        config,
        is_secure,
    })
}

fn listed(nodes: &[Node]) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_say_where_and_never_the_password() {
        let broker = RedisBroker::standalone("redis://me:secret@db:7000/3");
        assert_eq!(broker.label(), "redis db:7000");
        assert!(!format!("{broker:?}").contains("secret"));
        let cluster = RedisBroker::cluster(["redis://a:1", "redis://b:2"]);
        assert_eq!(cluster.label(), "redis cluster of a:1, b:2");
        let sentinel = RedisBroker::sentinel(["redis://a:26379"], "main");
        assert_eq!(sentinel.label(), "redis main behind sentinels a:26379");
    }

    #[tokio::test]
    async fn wrong_settings_are_told_when_connecting_without_the_secret() {
        for broker in [
            RedisBroker::standalone("not a url with secret"),
            RedisBroker::standalone("amqp://me:secret@localhost"),
            RedisBroker::cluster(Vec::<String>::new()),
            RedisBroker::cluster(["redis://a:1/4"]),
            RedisBroker::standalone("redis://localhost").group(""),
        ] {
            let error = broker.connect().await.expect_err("such settings cannot be used");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}

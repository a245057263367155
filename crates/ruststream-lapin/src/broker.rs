//! The settings of a server.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use lapin::uri::AMQPUri;
use ruststream::transport::{Broker, Routes, TransportError};

use crate::check;
use crate::connection::LapinConnection;
use crate::queue::{Queue, QueueType};
use crate::routes::Declarations;
use crate::settings::{Settings, Tls};
use crate::topology::{Declared, Topology};

/// A RabbitMQ server or cluster.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::transport::Broker;
/// use ruststream_lapin::LapinBroker;
///
/// let broker = LapinBroker::new("amqp://orders:secret@rabbit.example:5672/shop")
///     .connection_name("orders")
///     .quorum()
///     .publish_timeout(Duration::from_secs(30));
/// assert_eq!(broker.label(), "rabbitmq rabbit.example:5672/shop");
/// ```
#[derive(Debug, Clone)]
pub struct LapinBroker {
    settings: Settings,
}

impl LapinBroker {
    /// The server at a URL such as `amqp://user:password@host:5672/vhost`; see
    /// <https://www.rabbitmq.com/docs/uri-spec>. The virtual host `/` is written as `%2f`, or not at all.
    ///
    /// What is wrong with the URL is told by [`connect`](Broker::connect).
    pub fn new(url: impl AsRef<str>) -> Self {
        let uri = parse(url.as_ref());
        let label = match &uri {
            Ok(uri) => {
                let vhost = if uri.vhost == "/" { "" } else { uri.vhost.as_str() };
                format!("rabbitmq {}:{}/{vhost}", uri.authority.host, uri.authority.port)
            }
            Err(_) => "rabbitmq".to_owned(),
        };
        Self {
            settings: Settings {
                uri,
                label: label.into(),
                tls: Tls::default(),
                connection_name: "ruststream".to_owned(),
                heartbeat: Duration::from_secs(5),
                connect_timeout: Duration::from_secs(5),
                call_timeout: Duration::from_secs(5),
                publish_timeout: Duration::from_secs(10),
                queue_type: QueueType::Classic,
                mandatory: true,
                topology: Topology::default(),
            },
        }
    }

    /// Declares an exchange, a queue or a binding each time a connection is made, in that order.
    ///
    /// A subscription declares its own queue; what is declared here is there for those who publish, though no one reads it yet.
    #[must_use]
    pub fn declare(mut self, declared: impl Into<Declared>) -> Self {
        self.settings.topology.add(declared.into());
        self
    }

    /// Trusts these certificates, in PEM, besides those that the system trusts: those of whoever signed the server's.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn trusted_certificates(mut self, pem: impl Into<String>) -> Self {
        self.settings.tls.trusted = Some(pem.into());
        self
    }

    /// Shows the server this certificate, with its key; both in PEM. With [`external`](Self::external) it says who connects.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.settings.tls.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Logs in by SASL's `EXTERNAL`: the server takes the user from the [certificate](Self::client_certificate), which its plug-in
    /// `rabbitmq_auth_mechanism_ssl` reads. Unless it is set, user and password of the URL are sent (`PLAIN`).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn external(mut self) -> Self {
        if let Ok(uri) = &mut self.settings.uri {
            uri.query.auth_mechanism = Some(lapin::uri::SASLMechanism::External);
        }
        self
    }

    /// Sets the name that the server shows for the connections; `ruststream` unless set.
    #[must_use]
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.settings.connection_name = name.into();
        self
    }

    /// Makes the queues that subscriptions read by name quorum queues.
    #[must_use]
    pub fn quorum(self) -> Self {
        self.queue_type(QueueType::Quorum)
    }

    /// Sets the type of the queues that subscriptions read by name; [`QueueType::Classic`] unless set.
    #[must_use]
    pub fn queue_type(mut self, queue_type: QueueType) -> Self {
        self.settings.queue_type = queue_type;
        self
    }

    /// Sets how often either side shows that it is there, in whole seconds: 5 unless set, 1 at least. A link on which nothing came for
    /// twice that time is made anew.
    #[must_use]
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.settings.heartbeat = interval.max(Duration::from_secs(1));
        self
    }

    /// Sets how long an attempt to connect may take; 5 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets how long the server may take to answer a call, such as a declaration, before its link counts as lost; 5 s unless set.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.settings.call_timeout = timeout;
        self
    }

    /// Sets how long a publish may take to be confirmed; 10 s unless set.
    #[must_use]
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.settings.publish_timeout = timeout;
        self
    }

    /// Sets whether a message that reaches no queue is an error to its publisher; it is unless set otherwise.
    #[must_use]
    pub fn mandatory(mut self, mandatory: bool) -> Self {
        self.settings.mandatory = mandatory;
        self
    }
}

/// Reads a URL; the error says what is wrong without the password.
fn parse(url: &str) -> Result<AMQPUri, String> {
    let wrong =
        |what: &str| format!("the URL of the server is wrong: {what}; write amqp://user:password@host:5672/vhost");
    if !url.starts_with("amqp://") && !url.starts_with("amqps://") {
        return Err(wrong("it begins neither with amqp:// nor with amqps://"));
    }
    if url.starts_with("amqps://") && cfg!(not(feature = "tls")) {
        return Err("amqps:// needs the feature `tls` of ruststream-lapin".to_owned());
    }
    url.parse().map_err(|error: String| wrong(&error))
}

impl Broker for LapinBroker {
    type Connection = LapinConnection;
    type Source = Queue;

    fn label(&self) -> String {
        self.settings.label.to_string()
    }

    fn source(&self, name: &str) -> Queue {
        Queue::new(name).queue_type(self.settings.queue_type)
    }

    fn reply_source(&self, name: &str) -> Queue {
        Queue::direct_reply(name)
    }

    fn routes(&self, sources: &[&dyn Any]) -> Option<Box<dyn Routes>> {
        Some(Box::new(Declarations::new(&self.settings, sources)))
    }

    fn check(&self) -> Result<(), TransportError> {
        check::broker(&self.settings)
    }

    async fn connect(&self) -> Result<LapinConnection, TransportError> {
        self.check()?;
        LapinConnection::open(Arc::new(self.settings.clone())).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_bears_no_secret() {
        for url in [
            "amqp://user:secret@host:1/v",
            "http://user:secret@host",
            "amqp://user:secret@host:none/",
        ] {
            let broker = LapinBroker::new(url);
            let told = format!("{} {:?}", broker.label(), broker.settings.uri.as_ref().err());
            assert!(!told.contains("secret"), "{told}");
            assert!(!format!("{broker:?}").contains("secret"), "{broker:?}");
        }
    }
}

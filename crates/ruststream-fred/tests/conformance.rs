//! Every form passes the conformance suite: on one server, on a cluster of six, and behind a sentinel.

#![allow(clippy::unwrap_used, reason = "a test that has no server is a failed test")]

use std::time::Duration;

use ruststream::conformance::{Features, Harness};
use ruststream::transport::{Broker, TransportError};
use ruststream_fred::{Form, RedisBroker, RedisList, RedisSource, RedisStream};
use servers::{Kind, Proxy};

/// A shared server.
struct Server {
    topology: Topology,
    form: Form,
}

enum Topology {
    /// By way of a proxy of each check's own.
    Standalone(Proxy),
    Cluster(String),
    Sentinel(String),
}

impl Server {
    fn standalone(form: Form) -> Self {
        let url = servers::shared(Kind::Redis).unwrap();
        let port = url.rsplit_once(':').unwrap().1.trim_end_matches('/').parse().unwrap();
        let topology = Topology::Standalone(Proxy::to(port).unwrap());
        Self { topology, form }
    }

    fn cluster(form: Form) -> Self {
        let topology = Topology::Cluster(servers::shared(Kind::RedisCluster).unwrap());
        Self { topology, form }
    }

    fn sentinel(form: Form) -> Self {
        let topology = Topology::Sentinel(servers::shared(Kind::RedisSentinel).unwrap());
        Self { topology, form }
    }

    fn broker(&self) -> RedisBroker {
        let broker = match &self.topology {
            Topology::Standalone(proxy) => RedisBroker::standalone(format!("redis://127.0.0.1:{}", proxy.port())),
            Topology::Cluster(url) => RedisBroker::cluster([url]),
            Topology::Sentinel(url) => RedisBroker::sentinel([url], "main"),
        };
        broker.form(self.form)
    }

    /// What a channel says while its listener is cut off is lost, and links to the nodes of a cluster go past any proxy.
    fn cut(&self) -> bool {
        match &self.topology {
            Topology::Standalone(proxy) if !matches!(self.form, Form::Channel | Form::ShardedChannel) => {
                proxy.cut();
                true
            }
            _ => false,
        }
    }

    fn leased_source(&self, name: &str, lease: Duration) -> Option<RedisSource> {
        match self.form {
            Form::Stream => Some(RedisStream::new(name).lease(lease).into()),
            Form::List => Some(RedisList::new(name).lease(lease).into()),
            _ => None,
        }
    }

    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let connection = self.broker().connect().await?;
        let letters = connection.dead_letters().list(name, 1000).await?;
        Ok(Some(
            letters.into_iter().map(|letter| letter.payload.to_vec()).collect(),
        ))
    }
}

macro_rules! forms {
    ($($module:ident: $topology:ident, $form:expr, $features:expr;)*) => {
        $(
            mod $module {
                use super::*;

                struct Redis(Server);

                impl Harness for Redis {
                    type Broker = RedisBroker;

                    async fn start() -> Self {
                        Self(Server::$topology($form))
                    }

                    fn broker(&self) -> RedisBroker {
                        self.0.broker()
                    }

                    fn features(&self) -> Features {
                        $features
                    }

                    fn leased_source(&self, name: &str, lease: Duration) -> Option<RedisSource> {
                        self.0.leased_source(name, lease)
                    }

                    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
                        self.0.dead_letters(name).await
                    }

                    async fn cut(&self) -> bool {
                        self.0.cut()
                    }
                }

                ruststream::conformance::suite!(Redis);
            }
        )*
    };
}

forms! {
    streams: standalone, Form::Stream, Features::default();
    lists: standalone, Form::List, Features::default();
    plain_lists: standalone, Form::PlainList, Features::default().without_redelivery();
    channels: standalone, Form::Channel, Features::default().without_storage().without_sharing().without_places();
    sharded_channels: standalone, Form::ShardedChannel, Features::default().without_storage().without_sharing().without_places();

    cluster_streams: cluster, Form::Stream, Features::default();
    cluster_lists: cluster, Form::List, Features::default();
    cluster_channels: cluster, Form::Channel, Features::default().without_storage().without_sharing().without_places();
    cluster_sharded: cluster, Form::ShardedChannel, Features::default().without_storage().without_sharing().without_places();

    sentinel_streams: sentinel, Form::Stream, Features::default();
    sentinel_lists: sentinel, Form::List, Features::default();
    sentinel_channels: sentinel, Form::Channel, Features::default().without_storage().without_sharing().without_places();
}

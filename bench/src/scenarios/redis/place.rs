//! Where the scenarios run: one server, a cluster of six nodes, a primary behind a sentinel.

use std::sync::{Mutex, PoisonError};

use fred::clients::Client;
use fred::interfaces::ClientLike as _;
use fred::types::config::{Config, PerformanceConfig, ServerConfig};
use ruststream_fred::RedisBroker;
use servers::{Instance, Kind, Settings};

use crate::suite::Failed;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Standalone,
    Cluster,
    Sentinel,
}

impl Place {
    pub(super) const ALL: [Self; 3] = [Self::Standalone, Self::Cluster, Self::Sentinel];

    /// In the ids of scenarios.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Cluster => "cluster",
            Self::Sentinel => "sentinel",
        }
    }

    /// In their titles.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Standalone => "one server",
            Self::Cluster => "a cluster",
            Self::Sentinel => "behind a sentinel",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Standalone => Kind::Redis,
            Self::Cluster => Kind::RedisCluster,
            Self::Sentinel => Kind::RedisSentinel,
        }
    }
}

/// The servers, each started when it is first asked for.
#[derive(Default)]
pub(super) struct Servers {
    running: Mutex<Vec<(Place, Instance)>>,
}

impl Servers {
    fn with<T>(&self, place: Place, look: impl FnOnce(&Instance) -> T) -> Result<T, Failed> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if !running.iter().any(|(known, _)| *known == place) {
            running.push((place, Instance::start(place.kind(), Settings::default())?));
        }
        let found = running.iter().find(|(known, _)| *known == place);
        let (_, instance) = found.ok_or("a server that was started is not there")?;
        Ok(look(instance))
    }

    /// A client as one would make it by hand.
    pub(super) async fn client(&self, place: Place, performance: PerformanceConfig) -> Result<Client, Failed> {
        let port = self.with(place, Instance::port)?;
        let here = vec![("127.0.0.1", port)];
        let config = Config {
            server: match place {
                Place::Standalone => ServerConfig::new_centralized("127.0.0.1", port),
                Place::Cluster => ServerConfig::new_clustered(here),
                Place::Sentinel => ServerConfig::new_sentinel(here, "main"),
            },
            ..Config::default()
        };
        let client = Client::new(config, Some(performance), None, None);
        client.init().await?;
        Ok(client)
    }

    pub(super) fn broker(&self, place: Place) -> Result<RedisBroker, Failed> {
        let url = self.with(place, Instance::url)?;
        Ok(match place {
            Place::Standalone => RedisBroker::standalone(url),
            Place::Cluster => RedisBroker::cluster([url]),
            Place::Sentinel => RedisBroker::sentinel([url], "main"),
        })
    }
}

//! Redis: servers of the suite's own, without persistence.

mod channels;
mod hand;
mod lists;
mod own;
mod place;
mod streams;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use fred::clients::Client;
use fred::interfaces::{ClientLike as _, StreamsInterface as _};
use fred::types::config::PerformanceConfig;
use fred::types::{ClusterHash, CustomCommand, InfoKind, Value};

use place::{Place, Servers};

use crate::results::{Bound, Server};
use crate::suite::{Failed, Scenario, Transport, round_trip};

/// What a tuned loop reads and acks at a time, and the size of a batch.
const CHUNK: usize = 64;

/// The consumer group that is read by.
const GROUP: &str = "bench";

/// The command whose round trip is measured.
const TRIP: &str = "EXISTS";

/// The servers, and numbers for the names of keys.
pub struct Redis {
    servers: Servers,
    next: AtomicU64,
}

impl Transport for Redis {
    const NAME: &'static str = "redis";
    const BOUND: Bound = Bound::Broker;
    const CLIENTS: &'static [&'static str] = &["fred"];

    fn scenarios() -> Vec<Scenario<Self>> {
        let of = |place| {
            let mut scenarios = streams::scenarios(place);
            scenarios.extend(lists::scenarios(place));
            scenarios.extend(channels::scenarios(place));
            scenarios
        };
        Place::ALL.into_iter().flat_map(of).collect()
    }

    async fn open() -> Result<Self, Failed> {
        Ok(Self {
            servers: Servers::default(),
            next: AtomicU64::new(0),
        })
    }

    async fn server(&self) -> Result<Option<Server>, Failed> {
        let mut client = self.client(Place::Standalone).await?;
        let info: String = client.info(Some(InfoKind::Server)).await?;
        let version = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"))
            .unwrap_or("unknown")
            .to_owned();
        let mut settings = BTreeMap::new();
        for name in ["appendonly", "save", "io-threads"] {
            let command = CustomCommand::new_static("CONFIG", ClusterHash::FirstKey, false);
            let value: BTreeMap<String, String> = client.custom(command, vec!["GET", name]).await?;
            settings.extend(value);
        }
        let trip = round_trip(&mut client, |client| {
            Box::pin(async move {
                let command = CustomCommand::new_static(TRIP, ClusterHash::FirstKey, false);
                let _: Value = client.custom(command, vec!["nothing"]).await?;
                Ok(())
            })
        })
        .await?;
        client.quit().await?;
        Ok(Some(Server {
            version: format!("Redis {version}"),
            settings,
            round_trip_us: BTreeMap::from([(TRIP.to_owned(), trip)]),
        }))
    }
}

impl Redis {
    /// A client as one would make it by hand.
    async fn client(&self, place: Place) -> Result<Client, Failed> {
        self.servers.client(place, PerformanceConfig::default()).await
    }

    /// A key that no call of a loop has used. Its tag keeps others of the same loop beside it on a cluster.
    fn key(&self, what: &str) -> String {
        format!("{{{what}-{}}}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// How many entries of a stream are not acked yet: those that wait, and those in hand.
async fn left(client: &Client, stream: &str) -> Result<u64, Failed> {
    let groups: Vec<BTreeMap<String, Value>> = client.xinfo_groups(stream).await?;
    let mut left = 0;
    for group in groups {
        for field in ["pending", "lag"] {
            // The group of retries is read by no one, so that it lags.
            let is_retries = group
                .get("name")
                .and_then(Value::as_string)
                .is_some_and(|name| name.ends_with(":retries"));
            if !(is_retries && field == "lag") {
                left += group.get(field).and_then(Value::as_u64).unwrap_or(0);
            }
        }
    }
    Ok(left)
}

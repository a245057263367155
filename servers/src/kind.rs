//! Which servers there are, and how each is installed and started.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::{Error, Settings, maria, mosquitto, postgres, rabbit, redis, redis_cluster, redis_sentinel};

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `PostgreSQL`.
    Postgres,
    /// `MariaDB`.
    Maria,
    /// One Redis server.
    Redis,
    /// A Redis cluster: three primaries, each with a replica. Signals reach all its nodes; see [`RedisNodes`](crate::RedisNodes).
    RedisCluster,
    /// A Redis primary with a replica, and a sentinel that knows it as `main`, whose URL this is.
    RedisSentinel,
    /// One node of `RabbitMQ`.
    Rabbit,
    /// `Mosquitto`, a server of MQTT.
    Mosquitto,
}

/// How a kind of server is run; each has a file of its own.
pub(crate) trait Recipe {
    /// Makes the data directory and whatever else has to be there before the first start. `place` belongs to [`user`](Self::user).
    fn prepare(&self, place: &Path, port: u16, settings: Settings) -> Result<(), Error>;

    /// The command that runs the server in the foreground.
    fn command(&self, place: &Path, port: u16, settings: Settings) -> Command;

    /// Whether it answers; asked until it does, each time it was started.
    fn answers(&self, place: &Path, port: u16) -> bool;

    /// What has to be done once when it answers for the first time, such as making a database.
    fn set_up(&self, place: &Path, port: u16) -> Result<(), Error> {
        let _ = (place, port);
        Ok(())
    }

    /// What has to be ended besides the processes that it started.
    fn clean_up(&self, place: &Path, port: u16) {
        let _ = (place, port);
    }

    /// The signal that tells it to end without waiting for its clients.
    fn stops_by(&self) -> Signal {
        Signal::TERM
    }

    /// The user it runs as when this process is root's; `None` for root itself.
    fn user(&self) -> Option<&'static str> {
        None
    }

    /// The URL for clients.
    fn url(&self, port: u16) -> String;
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::Postgres,
        Kind::Maria,
        Kind::Redis,
        Kind::RedisCluster,
        Kind::RedisSentinel,
        Kind::Rabbit,
        Kind::Mosquitto,
    ];

    /// Its name on the command line and in file names.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Postgres => "postgres",
            Kind::Maria => "maria",
            Kind::Redis => "redis",
            Kind::RedisCluster => "redis-cluster",
            Kind::RedisSentinel => "redis-sentinel",
            Kind::Rabbit => "rabbit",
            Kind::Mosquitto => "mosquitto",
        }
    }

    /// The environment variable whose URL is used in place of a private instance.
    pub fn variable(self) -> &'static str {
        match self {
            Kind::Postgres => "RUSTSTREAM_POSTGRES_URL",
            Kind::Maria => "RUSTSTREAM_MYSQL_URL",
            Kind::Redis => "RUSTSTREAM_REDIS_URL",
            Kind::RedisCluster => "RUSTSTREAM_REDIS_CLUSTER_URL",
            Kind::RedisSentinel => "RUSTSTREAM_REDIS_SENTINEL_URL",
            Kind::Rabbit => "RUSTSTREAM_AMQP_URL",
            Kind::Mosquitto => "RUSTSTREAM_MQTT_URL",
        }
    }

    /// A program that is there when it is installed, and the Debian packages that bring it.
    pub(crate) fn needs(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Kind::Postgres => (postgres::SERVER, &["postgresql"]),
            Kind::Maria => (maria::SERVER, &["mariadb-server"]),
            Kind::Redis | Kind::RedisCluster | Kind::RedisSentinel => ("/usr/bin/redis-server", &["redis-server"]),
            Kind::Rabbit => (rabbit::SERVER, &["rabbitmq-server"]),
            Kind::Mosquitto => (mosquitto::SERVER, &["mosquitto"]),
        }
    }

    pub(crate) fn recipe(self) -> &'static dyn Recipe {
        match self {
            Kind::Postgres => &postgres::Postgres,
            Kind::Maria => &maria::Maria,
            Kind::Redis => &redis::Redis,
            Kind::RedisCluster => &redis_cluster::Cluster,
            Kind::RedisSentinel => &redis_sentinel::Sentinel,
            Kind::Rabbit => &rabbit::Rabbit,
            Kind::Mosquitto => &mosquitto::Mosquitto,
        }
    }
}

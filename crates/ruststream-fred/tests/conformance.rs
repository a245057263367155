//! Streams pass the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test that has no server is a failed test")]

use std::sync::Mutex;
use std::time::Duration;

use ruststream::conformance::Harness;
use ruststream::transport::{Broker, Delivery, Fetch, Source, TransportError};
use ruststream_fred::{RedisBroker, RedisSource};
use servers::{Kind, Proxy};

/// The shared server, by way of a proxy of each check's own.
struct Standalone {
    proxy: Proxy,
    /// What reads dead letters; kept, since a group remembers where it stands.
    url: Mutex<String>,
}

impl Harness for Standalone {
    type Broker = RedisBroker;

    async fn start() -> Self {
        let url = servers::shared(Kind::Redis).unwrap();
        let port = url.rsplit_once(':').unwrap().1.trim_end_matches('/').parse().unwrap();
        let proxy = Proxy::to(port).unwrap();
        let url = Mutex::new(format!("redis://127.0.0.1:{}", proxy.port()));
        Self { proxy, url }
    }

    fn broker(&self) -> RedisBroker {
        RedisBroker::standalone(self.url.lock().unwrap().as_str())
    }

    fn leased_source(&self, name: &str, lease: Duration) -> Option<RedisSource> {
        Some(RedisSource::stream(name).lease(lease))
    }

    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let connection = self.broker().connect().await?;
        let source = RedisSource::stream(&format!("{name}.dead")).group("check");
        let (mut fetch, _settle) = source.open(&connection).await?;
        let mut letters = Vec::new();
        while tokio::time::timeout(Duration::from_millis(200), fetch.fetch(100, &mut letters))
            .await
            .is_ok()
        {}
        Ok(Some(letters.iter().map(|letter| letter.payload().to_vec()).collect()))
    }

    async fn cut(&self) -> bool {
        self.proxy.cut();
        true
    }
}

ruststream::conformance::suite!(Standalone);

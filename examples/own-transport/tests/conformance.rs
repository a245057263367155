//! The transport passes the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test that cannot start its server is a failed test")]

use own_transport::{QueueBroker, Server, Store};
use ruststream::conformance::Harness;
use tokio::sync::Mutex;

/// A server of its own for each check; the store outlives its restarts.
struct OwnServer {
    server: Mutex<Option<Server>>,
    store: Store,
    address: String,
}

impl Harness for OwnServer {
    type Broker = QueueBroker;

    async fn start() -> Self {
        let store = Store::default();
        let server = Server::start("127.0.0.1:0", store.clone()).await.unwrap();
        let address = server.address().to_string();
        Self {
            server: Mutex::new(Some(server)),
            store,
            address,
        }
    }

    fn broker(&self) -> QueueBroker {
        QueueBroker::new(self.address.clone())
    }

    async fn cut(&self) -> bool {
        let mut server = self.server.lock().await;
        if let Some(running) = server.take() {
            running.stop().await;
        }
        *server = Some(Server::start(&self.address, self.store.clone()).await.unwrap());
        true
    }
}

ruststream::conformance::suite!(OwnServer);

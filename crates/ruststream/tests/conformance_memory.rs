//! The in-process broker passes the conformance suite.
#![cfg(feature = "conformance")]

use std::time::Duration;

use ruststream::conformance::Harness;
use ruststream::memory::{MemoryBroker, Queue};
use ruststream::transport::TransportError;

struct Memory(MemoryBroker);

impl Harness for Memory {
    type Broker = MemoryBroker;

    async fn start() -> Self {
        Self(MemoryBroker::new())
    }

    fn broker(&self) -> MemoryBroker {
        self.0.clone()
    }

    fn leased_source(&self, name: &str, lease: Duration) -> Option<Queue> {
        Some(Queue::new(name).lease(lease))
    }

    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let letters = self.0.dead_letters(name);
        Ok(Some(letters.iter().map(|dead| dead.payload.to_vec()).collect()))
    }

    async fn cut(&self) -> bool {
        self.0.cut();
        true
    }
}

ruststream::conformance::suite!(Memory);

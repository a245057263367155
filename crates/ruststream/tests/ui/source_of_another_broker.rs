use ruststream::memory::{MemoryFetch, MemoryPublisher, MemorySettle};
use ruststream::prelude::*;
use ruststream::transport::{Capabilities, Connection, Source, TransportError};

struct ShelfConnection;

impl Connection for ShelfConnection {
    type Publisher = MemoryPublisher;

    fn publisher(&self) -> MemoryPublisher {
        todo!()
    }

    async fn ping(&self) -> Result<(), TransportError> {
        todo!()
    }

    async fn close(&self) {}
}

struct Shelf;

impl Source for Shelf {
    type Connection = ShelfConnection;
    type Fetch = MemoryFetch;
    type Settle = MemorySettle;

    fn name(&self) -> &str {
        "shelf"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    async fn open(&self, _: &ShelfConnection) -> Result<(MemoryFetch, MemorySettle), TransportError> {
        todo!()
    }
}

#[subscriber("orders")]
async fn confirm(_order: u64) {}

fn main() {
    let _ = RustStream::new(AppInfo::new("orders", "1.0.0")).with_broker(MemoryBroker::new(), |broker| {
        broker.include(confirm).source(Shelf);
    });
}

//! In process: what the runtime costs beside channels of tokio, where no server hides it.

mod drain;
mod flow;
mod keyed;
mod lanes;
mod pool;
mod service;

use ruststream::memory::MemoryBroker;

use crate::results::{Bound, Server};
use crate::suite::{Failed, Scenario, Transport};

/// The queue that is read.
const QUEUE: &str = "orders";

/// Messages that wait between a producer and its consumers, in every loop.
const CAPACITY: usize = 1_024;

/// The in-process broker.
pub struct Memory;

impl Transport for Memory {
    const NAME: &'static str = "memory";
    const BOUND: Bound = Bound::Broker;
    const CLIENTS: &'static [&'static str] = &["tokio"];

    fn scenarios() -> Vec<Scenario<Self>> {
        vec![drain::scenario(), flow::scenario(), pool::scenario(), keyed::scenario()]
    }

    async fn open() -> Result<Self, Failed> {
        Ok(Self)
    }

    async fn server(&self) -> Result<Option<Server>, Failed> {
        Ok(None)
    }
}

/// A broker of the loops' capacity. A publish waits for room as long as it takes.
fn broker(capacity: usize) -> MemoryBroker {
    MemoryBroker::new()
        .capacity(capacity)
        .publish_deadline(std::time::Duration::from_mins(10))
}

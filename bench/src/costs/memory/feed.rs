//! What stands around the loops: it publishes to them, and takes away what they publish. Callgrind counts nothing of it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ruststream::memory::{MemoryBroker, MemoryFetch, MemoryPublisher, MemorySettle, Queue};
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::transport::{Broker, Delivery, Fetch, Publish, Settle, Source, Verdict};

use super::messages::{IN, LARGE, OUT, SMALL, headers};
use crate::costs::program::{ROUND, uncounted};

pub(super) struct Feed {
    publisher: MemoryPublisher,
    body: &'static [u8],
    headers: HeaderMap,
    fetch: MemoryFetch,
    settle: MemorySettle,
    taken: Vec<<MemoryFetch as Fetch>::Delivery>,
    finished: Vec<(<MemorySettle as Settle>::Receipt, Verdict)>,
}

impl Feed {
    pub(super) async fn open(broker: &MemoryBroker, name: &str) -> Result<Self, String> {
        let connection = broker.connect().await.map_err(|error| error.to_string())?;
        let opened = Queue::new(OUT).open(&connection).await;
        let (fetch, settle) = opened.map_err(|error| error.to_string())?;
        Ok(Self {
            publisher: broker.publisher(),
            body: if name == "json-1kb" { LARGE } else { SMALL },
            headers: if name == "headers-publish" {
                headers()
            } else {
                HeaderMap::new()
            },
            fetch,
            settle,
            taken: Vec::new(),
            finished: Vec::new(),
        })
    }

    /// Publishes so many messages, and takes away what was published in the round before.
    pub(super) fn publish(&mut self, messages: u64) {
        uncounted(|| {
            self.take_away();
            for _ in 0..messages {
                let outgoing = [Outgoing::new(IN, self.body).with_headers(&self.headers)];
                at_once(self.publisher.publish(&outgoing)).expect("the queue has room");
            }
        });
    }

    fn take_away(&mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        while pin!(self.fetch.fetch(ROUND as usize, &mut self.taken))
            .poll(cx)
            .is_ready()
        {
            let taken = self.taken.drain(..);
            self.finished
                .extend(taken.map(|one| (one.into_receipt(), Verdict::Ack)));
            at_once(self.settle.settle(&mut self.finished)).expect("what was just taken is in hand");
        }
    }
}

/// A call of the in-process broker that has nothing to wait for.
fn at_once<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("the in-process broker answers at once"),
    }
}

//! What the tests share, whatever the database: short words for the halves.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use ruststream::message::Outgoing;
use ruststream::transport::{Connection, Delivery, Fetch, Publish, Settle, Settled, Source, Verdict};
use ruststream_sqlx::{Inbox, InboxDelivery, InboxFetch, InboxReceipt, InboxSettle, SqlxConnection};

/// Nothing here takes so long: what does is stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Both halves of a subscription.
pub(crate) struct Subscription {
    pub(crate) fetch: InboxFetch,
    pub(crate) settle: InboxSettle,
}

pub(crate) async fn subscribe(connection: &SqlxConnection, queue: &str) -> Subscription {
    open(connection, &Inbox::queue(queue)).await
}

pub(crate) async fn open(connection: &SqlxConnection, inbox: &Inbox) -> Subscription {
    let (fetch, settle) = inbox.open(connection).await.unwrap();
    Subscription { fetch, settle }
}

impl Subscription {
    /// What the next fetch brings.
    pub(crate) async fn next(&mut self, room: usize) -> Vec<InboxDelivery> {
        let mut deliveries = Vec::new();
        tokio::time::timeout(PATIENCE, self.fetch.fetch(room, &mut deliveries))
            .await
            .expect("a fetch got nothing in time")
            .unwrap();
        deliveries
    }

    pub(crate) async fn next_one(&mut self) -> InboxDelivery {
        self.next(1).await.remove(0)
    }

    /// Exactly so many, in as many fetches as it takes.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<InboxDelivery> {
        let mut deliveries = Vec::new();
        while deliveries.len() < count {
            deliveries.extend(self.next(count - deliveries.len()).await);
        }
        deliveries
    }

    /// True if a fetch brings nothing for a while.
    pub(crate) async fn finds_nothing(&mut self) -> bool {
        let mut deliveries = Vec::new();
        let fetch = self.fetch.fetch(1, &mut deliveries);
        tokio::time::timeout(Duration::from_millis(150), fetch).await.is_err()
    }

    pub(crate) async fn end(&mut self, deliveries: Vec<InboxDelivery>, verdict: Verdict) -> Settled {
        let mut finished = receipts(deliveries, &verdict);
        let settled = self.settle.settle(&mut finished).await.unwrap();
        assert!(finished.is_empty());
        settled
    }

    pub(crate) async fn ack(&mut self, deliveries: Vec<InboxDelivery>) -> Settled {
        self.end(deliveries, Verdict::Ack).await
    }
}

pub(crate) fn receipts(deliveries: Vec<InboxDelivery>, verdict: &Verdict) -> Vec<(InboxReceipt, Verdict)> {
    deliveries
        .into_iter()
        .map(|delivery| (delivery.into_receipt(), verdict.clone()))
        .collect()
}

pub(crate) async fn publish(connection: &SqlxConnection, queue: &str, payloads: &[&[u8]]) {
    let messages: Vec<_> = payloads.iter().map(|payload| Outgoing::new(queue, payload)).collect();
    connection.publisher().publish(&messages).await.unwrap();
}

pub(crate) async fn publish_numbers(connection: &SqlxConnection, queue: &str, count: usize) {
    let payloads: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(String::as_bytes).collect();
    publish(connection, queue, &payloads).await;
}

pub(crate) fn payloads(deliveries: &[InboxDelivery]) -> Vec<String> {
    deliveries
        .iter()
        .map(|delivery| String::from_utf8(delivery.payload().to_vec()).unwrap())
        .collect()
}

pub(crate) fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Looks until `there` says yes: for what has no signal of its own.
pub(crate) async fn eventually<T>(mut look: impl AsyncFnMut() -> T, there: impl Fn(&T) -> bool) -> T {
    let looking = async {
        loop {
            let seen = look().await;
            if there(&seen) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it never came")
}

//! What the in-process broker does, beyond what the conformance suite asks of every transport.

use std::time::{Duration, SystemTime};

use super::*;
use crate::message::{HeaderMap, Outgoing};
use crate::transport::{
    Broker, Connection, DeadLetter, DeadReason, Delivery, ErrorKind, Fetch, Publish, Settle, Source, Verdict,
};

struct Subscription {
    fetch: MemoryFetch,
    settle: MemorySettle,
}

impl Subscription {
    async fn open(broker: &MemoryBroker, source: Queue) -> Self {
        let connection = broker.connect().await.unwrap();
        let (fetch, settle) = source.open(&connection).await.unwrap();
        Self { fetch, settle }
    }

    async fn take(&mut self, room: usize) -> Vec<MemoryDelivery> {
        let mut taken = Vec::new();
        self.fetch.fetch(room, &mut taken).await.unwrap();
        taken
    }

    async fn give(&mut self, deliveries: Vec<MemoryDelivery>, verdict: Verdict) -> usize {
        let mut finished: Vec<_> = deliveries
            .into_iter()
            .map(|delivery| (delivery.into_receipt(), verdict.clone()))
            .collect();
        let settled = self.settle.settle(&mut finished).await.unwrap();
        assert!(finished.is_empty());
        settled.stale
    }

    async fn is_empty(&mut self) -> bool {
        tokio::time::timeout(Duration::ZERO, self.take(1)).await.is_err()
    }
}

async fn publish(broker: &MemoryBroker, destination: &str, payloads: &[&str]) {
    let messages: Vec<_> = payloads
        .iter()
        .map(|payload| Outgoing::new(destination, payload.as_bytes()))
        .collect();
    broker.publisher().publish(&messages).await.unwrap();
}

fn texts(deliveries: &[MemoryDelivery]) -> Vec<&str> {
    deliveries
        .iter()
        .map(|delivery| std::str::from_utf8(delivery.payload()).unwrap())
        .collect()
}

fn letter() -> Verdict {
    Verdict::DeadLetter(Box::new(DeadLetter {
        reason: DeadReason::Rejected,
        error: "no such customer".to_owned(),
        attempts: 1,
        source: "orders".to_owned(),
        at: SystemTime::now(),
    }))
}

#[tokio::test]
async fn a_message_published_before_the_first_subscription_is_kept() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["a", "b"]).await;
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    assert_eq!(texts(&orders.take(64).await), ["a", "b"]);
}

#[tokio::test]
async fn every_source_that_matches_gets_its_copy_and_equal_sources_share() {
    let broker = MemoryBroker::new();
    let mut queue = Subscription::open(&broker, Queue::new("orders.eu")).await;
    let mut star = Subscription::open(&broker, Queue::new("orders.*")).await;
    let mut same_star = Subscription::open(&broker, Queue::new("orders.*")).await;
    let mut rest = Subscription::open(&broker, Queue::new("orders.>")).await;
    let mut all = Subscription::open(&broker, Queue::broadcast("orders.eu")).await;
    let mut all_again = Subscription::open(&broker, Queue::broadcast("orders.eu")).await;
    publish(&broker, "orders.eu", &["a", "b"]).await;
    publish(&broker, "orders.eu.paris", &["c"]).await;

    assert_eq!(texts(&queue.take(64).await), ["a", "b"]);
    assert_eq!(texts(&star.take(1).await), ["a"]);
    assert_eq!(texts(&same_star.take(64).await), ["b"]);
    assert_eq!(texts(&all.take(64).await), ["a", "b"]);
    assert_eq!(texts(&all_again.take(64).await), ["a", "b"]);
    let deliveries = rest.take(64).await;
    assert_eq!(texts(&deliveries), ["a", "b", "c"]);
    let origin: &Origin = deliveries[2].fields().downcast_ref().unwrap();
    assert_eq!(origin.destination(), "orders.eu.paris");
}

#[tokio::test]
async fn an_unread_queue_gets_no_copy_beside_a_pattern_and_an_opened_one_does() {
    let broker = MemoryBroker::new();
    let _star = Subscription::open(&broker, Queue::new("orders.*")).await;
    publish(&broker, "orders.eu", &["a"]).await;
    assert_eq!(broker.published("orders.eu").len(), 0);
    drop(Subscription::open(&broker, Queue::new("orders.eu")).await);
    publish(&broker, "orders.eu", &["b"]).await;
    assert_eq!(broker.published("orders.eu").len(), 1);
    assert_eq!(broker.published("orders.*").len(), 2);
}

#[tokio::test]
async fn a_broadcast_copy_ends_with_its_subscription() {
    let broker = MemoryBroker::new().capacity(1);
    let prices = Subscription::open(&broker, Queue::broadcast("prices")).await;
    publish(&broker, "prices", &["1"]).await;
    let blocked = tokio::spawn({
        let broker = broker.clone();
        async move { publish(&broker, "prices", &["2"]).await }
    });
    tokio::task::yield_now().await;
    drop(prices);
    blocked.await.unwrap();
    // No one else reads the name, so the message is kept for a queue subscription.
    assert_eq!(broker.published("prices").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_makes_publishers_wait_and_then_fail_with_the_fix() {
    let broker = MemoryBroker::new().capacity(2);
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    let messages = ["a", "b", "c", "d"].map(|payload| Outgoing::new("orders", payload.as_bytes()));
    let error = broker.publisher().publish(&messages).await.unwrap_err();
    assert!(error.for_message(1).is_none());
    for refused in [2, 3] {
        assert_eq!(error.for_message(refused).unwrap().kind(), ErrorKind::Busy);
    }
    assert!(error.to_string().contains("`orders` is full"), "{error}");

    let waiting = tokio::spawn({
        let broker = broker.clone();
        async move { publish(&broker, "orders", &["e", "f", "g"]).await }
    });
    for _ in 0..3 {
        let deliveries = orders.take(1).await;
        orders.give(deliveries, Verdict::Ack).await;
    }
    waiting.await.unwrap();
    assert_eq!(texts(&orders.take(64).await), ["f", "g"]);
}

#[tokio::test(start_paused = true)]
async fn a_publish_to_several_is_stored_in_all_or_in_none() {
    let broker = MemoryBroker::new().capacity(1);
    let _queue = Subscription::open(&broker, Queue::new("orders.eu")).await;
    publish(&broker, "orders.eu", &["a"]).await;
    let _star = Subscription::open(&broker, Queue::new("orders.*")).await;
    let error = broker.publisher().publish(&[Outgoing::new("orders.eu", b"b")]).await;
    assert!(error.is_err());
    assert_eq!(broker.held("orders.*"), 0);
}

#[tokio::test]
async fn a_payload_above_the_limit_is_refused_and_its_neighbours_are_stored() {
    let broker = MemoryBroker::new().max_payload(3);
    let messages = ["abc", "abcd", "ab"].map(|payload| Outgoing::new("orders", payload.as_bytes()));
    let error = broker.publisher().publish(&messages).await.unwrap_err();
    assert!(error.for_message(0).is_none() && error.for_message(2).is_none());
    assert!(error.for_message(1).unwrap().is_too_large());
    assert_eq!(broker.published("orders").len(), 2);
}

#[tokio::test]
async fn wrong_names_are_refused() {
    let broker = MemoryBroker::new();
    let connection = broker.connect().await.unwrap();
    for source in [broker.source(""), broker.source("a.>.b"), Queue::broadcast("a.*")] {
        let error = source.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(
            source.open(&connection).await.err().unwrap().to_string(),
            error.to_string()
        );
    }
    for destination in ["", "a.*"] {
        let error = broker.publisher().publish(&[Outgoing::new(destination, b"")]).await;
        assert_eq!(error.unwrap_err().first().kind(), ErrorKind::Invalid);
    }
}

#[tokio::test(start_paused = true)]
async fn delays_follow_the_clock() {
    let broker = MemoryBroker::new();
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    let late = Outgoing::new("orders", b"late").with_delay(Duration::from_mins(1));
    let soon = Outgoing::new("orders", b"soon").with_delay(Duration::from_secs(1));
    broker.publisher().publish(&[late, soon]).await.unwrap();

    let start = tokio::time::Instant::now();
    let deliveries = orders.take(64).await;
    assert_eq!((texts(&deliveries), start.elapsed().as_secs()), (vec!["soon"], 1));
    orders
        .give(
            deliveries,
            Verdict::Retry {
                after: Duration::from_secs(9),
            },
        )
        .await;
    let deliveries = orders.take(64).await;
    assert_eq!((texts(&deliveries), start.elapsed().as_secs()), (vec!["soon"], 10));
    assert_eq!(deliveries[0].attempt(), 2);
    let deliveries = orders.take(64).await;
    assert_eq!((texts(&deliveries), start.elapsed().as_secs()), (vec!["late"], 60));
}

#[tokio::test(start_paused = true)]
async fn a_shorter_delay_wakes_a_fetch_that_waits_for_a_longer_one() {
    let broker = MemoryBroker::new();
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    let publisher = broker.publisher();
    let later = Outgoing::new("orders", b"late").with_delay(Duration::from_mins(1));
    publisher.publish(&[later]).await.unwrap();
    let fetched = tokio::spawn(async move { texts(&orders.take(64).await).join(" ") });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sooner = Outgoing::new("orders", b"soon").with_delay(Duration::from_secs(1));
    publisher.publish(&[sooner]).await.unwrap();
    assert_eq!(fetched.await.unwrap(), "soon");
}

#[tokio::test]
async fn released_messages_return_to_their_old_places_uncounted() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["a", "b", "c", "d", "e"]).await;
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    let mut deliveries = orders.take(4).await;
    let last = deliveries.split_off(3);
    deliveries.reverse();
    orders.give(last, Verdict::Release).await;
    orders.give(deliveries, Verdict::Release).await;
    let deliveries = orders.take(64).await;
    assert_eq!(texts(&deliveries), ["a", "b", "c", "d", "e"]);
    assert!(deliveries.iter().all(|delivery| delivery.attempt() == 1));
}

#[tokio::test]
async fn what_a_subscription_leaves_unsettled_returns_counted() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["a", "b", "c"]).await;
    let mut dying = Subscription::open(&broker, Queue::new("orders")).await;
    let in_hand = dying.take(2).await;
    drop(dying);
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    let deliveries = orders.take(64).await;
    let attempts: Vec<_> = deliveries.iter().map(Delivery::attempt).collect();
    assert_eq!((texts(&deliveries), attempts), (vec!["a", "b", "c"], vec![2, 2, 1]));
    // What the first subscription still reads was not touched.
    assert_eq!(texts(&in_hand), ["a", "b"]);
}

#[tokio::test]
async fn deliveries_can_be_settled_after_the_fetch_half_closed() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["a"]).await;
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    let deliveries = orders.take(1).await;
    let Subscription { fetch, mut settle } = orders;
    fetch.close().await.unwrap();
    let mut finished: Vec<_> = deliveries
        .into_iter()
        .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
        .collect();
    assert_eq!(settle.settle(&mut finished).await.unwrap().stale, 0);
    settle.close().await.unwrap();
    broker.idle("orders").await;
}

#[tokio::test]
async fn what_is_fetched_after_the_settle_half_closed_returns_with_the_fetch_half() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["a"]).await;
    let Subscription { mut fetch, settle } = Subscription::open(&broker, Queue::new("orders")).await;
    drop(settle);
    fetch.fetch(1, &mut Vec::new()).await.unwrap();
    assert!(broker.published("orders").is_empty());
    drop(fetch);
    assert_eq!(broker.published("orders").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_runs_out_moves_the_message_and_makes_its_receipt_stale() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["a"]).await;
    let source = Queue::new("orders").lease(Duration::from_secs(30));
    let mut slow = Subscription::open(&broker, source.clone()).await;
    let mut other = Subscription::open(&broker, source).await;
    let in_hand = slow.take(1).await;
    let start = tokio::time::Instant::now();
    let again = other.take(1).await;
    assert_eq!((start.elapsed().as_secs(), again[0].attempt()), (30, 2));

    let mut lost = Vec::new();
    slow.settle.renew(&mut lost).await.unwrap();
    assert_eq!(lost, [in_hand[0].lease_id()]);
    assert_eq!(slow.give(in_hand, Verdict::Ack).await, 1);
    assert_eq!(broker.held("orders"), 1);
    assert_eq!(other.give(again, Verdict::Ack).await, 0);
    broker.idle("orders").await;
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_holds() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["a"]).await;
    let source = Queue::new("orders").lease(Duration::from_secs(30));
    let mut slow = Subscription::open(&broker, source.clone()).await;
    let mut other = Subscription::open(&broker, source).await;
    let in_hand = slow.take(1).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let mut lost = Vec::new();
        slow.settle.renew(&mut lost).await.unwrap();
        assert!(lost.is_empty() && other.is_empty().await);
    }
    assert_eq!(slow.give(in_hand, Verdict::Ack).await, 0);
}

#[tokio::test]
async fn dead_letters_are_kept_whole_and_can_be_replayed() {
    let broker = MemoryBroker::new();
    let mut headers = HeaderMap::new();
    headers.append("trace", vec![0xff]);
    let message = Outgoing::new("orders", b"{").with_headers(&headers).with_key(b"k");
    broker.publisher().publish(&[message]).await.unwrap();
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    let deliveries = orders.take(1).await;
    orders.give(deliveries, letter()).await;
    assert!(orders.is_empty().await);

    let dead = broker.dead_letters("orders");
    assert_eq!((&dead[0].payload[..], &dead[0].headers), (&b"{"[..], &headers));
    assert_eq!(dead[0].key.as_deref(), Some(&b"k"[..]));
    assert_eq!(dead[0].letter.error, "no such customer");

    assert_eq!(broker.replay("orders"), 1);
    assert!(broker.dead_letters("orders").is_empty());
    let deliveries = orders.take(1).await;
    assert_eq!((deliveries[0].attempt(), deliveries[0].key()), (1, Some(&b"k"[..])));
    assert_eq!(deliveries[0].headers(), &headers);
}

#[tokio::test]
async fn a_full_shelf_of_dead_letters_keeps_the_message() {
    let broker = MemoryBroker::new().capacity(1);
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    for _ in 0..2 {
        publish(&broker, "orders", &["a"]).await;
        let mut finished: Vec<_> = orders
            .take(1)
            .await
            .into_iter()
            .map(|delivery| (delivery.into_receipt(), letter()))
            .collect();
        let settled = orders.settle.settle(&mut finished).await;
        if broker.held("orders") > 0 {
            assert!(settled.unwrap_err().is_transient());
            assert_eq!(broker.take_dead_letters("orders").len(), 1);
            orders.settle.settle(&mut finished).await.unwrap();
        }
    }
    assert_eq!(broker.dead_letters("orders").len(), 1);
}

#[tokio::test]
async fn a_cut_gives_everything_back_and_the_next_fetch_goes_on() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["a", "b"]).await;
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    let mut waiting = Subscription::open(&broker, Queue::new("idle")).await;
    let waiting = tokio::spawn(async move {
        let mut taken = Vec::new();
        waiting.fetch.fetch(1, &mut taken).await.unwrap_err().kind()
    });
    let in_hand = orders.take(1).await;
    tokio::task::yield_now().await;
    broker.cut();
    assert_eq!(waiting.await.unwrap(), ErrorKind::Unavailable);
    assert_eq!(orders.give(in_hand, Verdict::Ack).await, 1);
    assert!(orders.fetch.fetch(1, &mut Vec::new()).await.unwrap_err().is_transient());
    let deliveries = orders.take(64).await;
    assert_eq!((texts(&deliveries), deliveries[0].attempt()), (vec!["a", "b"], 2));
}

#[tokio::test]
async fn planned_faults_happen_as_often_as_planned() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["a"]).await;
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    broker.fail_next(Operation::Fetch, 2, ErrorKind::Busy);
    for _ in 0..2 {
        let error = orders.fetch.fetch(1, &mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
    }
    let mut finished: Vec<_> = orders
        .take(1)
        .await
        .into_iter()
        .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
        .collect();
    broker.set_down(true);
    assert!(orders.settle.settle(&mut finished).await.is_err());
    assert_eq!(finished.len(), 1);
    assert!(broker.connect().await.is_err());
    broker.set_down(false);
    assert!(broker.connect().await.unwrap().ping().await.is_ok());
    assert_eq!(orders.settle.settle(&mut finished).await.unwrap().stale, 1);
    assert_eq!(
        (
            broker.counts("orders").fetch_calls,
            broker.counts("orders").settle_calls
        ),
        (3, 2)
    );
}

#[tokio::test]
async fn a_closed_connection_says_so() {
    let broker = MemoryBroker::new();
    let connection = broker.connect().await.unwrap();
    let publisher = connection.publisher();
    connection.close().await;
    assert_eq!(connection.ping().await.unwrap_err().kind(), ErrorKind::Closed);
    let error = publisher.publish(&[Outgoing::new("orders", b"")]).await.unwrap_err();
    assert_eq!(error.first().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn buffers_are_reused_without_a_trace_of_the_message_before() {
    let broker = MemoryBroker::new();
    let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
    let headers: HeaderMap = [("a", "1")].into_iter().collect();
    let large = vec![7u8; 100_000];
    let full = Outgoing::new("orders", &large).with_headers(&headers).with_key(b"key");
    for message in [
        full,
        Outgoing::new("orders", b""),
        Outgoing::new("orders", b"x").with_key(b""),
    ] {
        broker.publisher().publish(&[message]).await.unwrap();
        let deliveries = orders.take(1).await;
        assert_eq!(deliveries[0].payload(), message.payload());
        assert_eq!(deliveries[0].headers(), message.headers());
        assert_eq!((deliveries[0].key(), deliveries[0].attempt()), (message.key(), 1));
        orders.give(deliveries, Verdict::Ack).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_wake_those_who_wait() {
    let broker = MemoryBroker::new().capacity(16);
    let consumers: Vec<_> = (0..3)
        .map(|_| {
            let broker = broker.clone();
            tokio::spawn(async move {
                let mut orders = Subscription::open(&broker, Queue::new("orders")).await;
                loop {
                    let deliveries = orders.take(4).await;
                    orders.give(deliveries, Verdict::Ack).await;
                }
            })
        })
        .collect();
    let publishers: Vec<_> = (0..3)
        .map(|_| {
            let broker = broker.clone();
            tokio::spawn(async move {
                for _ in 0..1000 {
                    publish(&broker, "orders", &["a", "b"]).await;
                }
            })
        })
        .collect();
    for publisher in publishers {
        publisher.await.unwrap();
    }
    broker.settled("orders", 6000).await;
    broker.idle("orders").await;
    assert_eq!(broker.counts("orders").delivered, 6000);
    consumers.iter().for_each(tokio::task::JoinHandle::abort);
}

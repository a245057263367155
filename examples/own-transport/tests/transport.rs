//! The transport, driven by hand: what a transport's author looks at before the conformance suite does.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::collections::BTreeSet;
use std::time::Duration;

use own_transport::transport::{QueueConnection, QueueFetch, QueuePublisher, QueueSettle};
use own_transport::{QueueBroker, QueueDelivery, Server, Store};
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::transport::{
    Broker, Connection, Delivery, ErrorKind, Fetch, Publish, PublishError, Settle, Source, TransportError, Verdict,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

const RETRY: Verdict = Verdict::Retry { after: Duration::ZERO };

/// A server with a store, and a connection to it.
struct Setting {
    store: Store,
    server: Server,
    broker: QueueBroker,
    connection: QueueConnection,
    publisher: QueuePublisher,
}

impl Setting {
    async fn new() -> Self {
        let store = Store::default();
        let server = Server::start("127.0.0.1:0", store.clone()).await.unwrap();
        let broker = QueueBroker::new(server.address().to_string());
        let connection = broker.connect().await.unwrap();
        let publisher = connection.publisher();
        Self {
            store,
            server,
            broker,
            connection,
            publisher,
        }
    }

    async fn open(&self) -> (QueueFetch, QueueSettle) {
        let source = self.broker.source("orders");
        source.open(&self.connection).await.unwrap()
    }

    async fn publish(&self, payload: &str) {
        publish(&self.publisher, payload).await.unwrap();
    }
}

async fn publish(publisher: &QueuePublisher, payload: &str) -> Result<(), PublishError> {
    publisher.publish(&[Outgoing::new("orders", payload.as_bytes())]).await
}

async fn fetch(half: &mut QueueFetch, room: usize) -> Vec<QueueDelivery> {
    let mut into = Vec::new();
    let fetching = half.fetch(room, &mut into);
    timeout(Duration::from_secs(10), fetching)
        .await
        .expect("a message comes")
        .unwrap();
    into
}

async fn fetch_one(half: &mut QueueFetch) -> QueueDelivery {
    fetch(half, 1).await.pop().unwrap()
}

async fn settle(
    half: &mut QueueSettle,
    deliveries: impl IntoIterator<Item = QueueDelivery>,
    verdict: Verdict,
) -> usize {
    let receipts = deliveries.into_iter().map(Delivery::into_receipt);
    let mut finished: Vec<_> = receipts.map(|receipt| (receipt, verdict.clone())).collect();
    let settled = half.settle(&mut finished).await.unwrap();
    assert!(finished.is_empty());
    settled.stale
}

fn text(delivery: &QueueDelivery) -> &str {
    std::str::from_utf8(delivery.payload()).unwrap()
}

#[tokio::test]
async fn messages_arrive_as_published_and_in_order() {
    let setting = Setting::new().await;
    let (mut fetching, _settling) = setting.open().await;
    let headers: HeaderMap = [("région", vec![0xff, 0x00]), ("région", vec![])].into_iter().collect();
    let large = vec![7; 1 << 20];
    let messages = [
        Outgoing::new("orders", b"").with_headers(&headers),
        Outgoing::new("orders", &large).with_key(b""),
        Outgoing::new("orders", b"\xf0\x9f").with_key(b"k"),
    ];

    setting.publisher.publish(&messages).await.unwrap();

    let mut arrived = Vec::new();
    while arrived.len() < 3 {
        fetching.fetch(3, &mut arrived).await.unwrap();
    }
    for (message, delivery) in messages.iter().zip(&arrived) {
        assert_eq!(delivery.payload(), message.payload());
        assert_eq!(delivery.headers(), message.headers());
        assert_eq!(delivery.key(), message.key());
        assert_eq!(delivery.attempt(), 1);
    }
}

#[tokio::test]
async fn a_fetch_wakes_when_a_message_comes() {
    let setting = Setting::new().await;
    let (mut fetching, _settling) = setting.open().await;
    let waiting = tokio::spawn(async move { text(&fetch_one(&mut fetching).await).to_owned() });
    tokio::task::yield_now().await;

    setting.publish("late").await;

    let arrived = timeout(Duration::from_secs(2), waiting)
        .await
        .expect("woken before its long poll ends");
    assert_eq!(arrived.unwrap(), "late");
}

#[tokio::test]
async fn a_fetch_outlasts_polls_that_bring_nothing() {
    let setting = Setting::new().await;
    let broker = setting.broker.clone().deadline(Duration::from_millis(400));
    let connection = broker.connect().await.unwrap();
    let (mut fetching, _settling) = broker.source("orders").open(&connection).await.unwrap();

    let in_vain = timeout(Duration::from_secs(1), fetch_one(&mut fetching)).await;
    assert!(in_vain.is_err());

    setting.publish("at last").await;
    assert_eq!(text(&fetch_one(&mut fetching).await), "at last");
}

#[tokio::test]
async fn an_acked_message_is_gone() {
    let setting = Setting::new().await;
    let (mut fetching, mut settling) = setting.open().await;
    for n in 0..3 {
        setting.publish(&n.to_string()).await;
    }

    let deliveries = fetch(&mut fetching, 10).await;
    assert_eq!(deliveries.len(), 3);
    assert_eq!(settle(&mut settling, deliveries, Verdict::Ack).await, 0);

    assert!(setting.store.is_empty());
}

#[tokio::test]
async fn a_retry_counts_and_a_release_does_not() {
    let setting = Setting::new().await;
    let (mut fetching, mut settling) = setting.open().await;
    setting.publish("first").await;
    setting.publish("second").await;

    let mut attempts = Vec::new();
    for verdict in [RETRY, Verdict::Release, RETRY, Verdict::Ack] {
        let delivery = fetch_one(&mut fetching).await;
        assert_eq!(text(&delivery), "first", "a message keeps its place");
        attempts.push(delivery.attempt());
        settle(&mut settling, [delivery], verdict).await;
    }

    assert_eq!(attempts, [1, 2, 2, 3]);
    assert_eq!(text(&fetch_one(&mut fetching).await), "second");
}

#[tokio::test]
async fn a_fetch_that_is_dropped_loses_nothing() {
    const COUNT: usize = 300;
    let setting = Setting::new().await;
    let (mut fetching, mut settling) = setting.open().await;
    let publisher = setting.publisher.clone();
    let publishing = tokio::spawn(async move {
        for n in 0..COUNT {
            publish(&publisher, &format!("{n:>2000}")).await.unwrap();
        }
    });

    // Dropped after one poll, two polls, … : at every await point there is.
    let mut seen = Vec::new();
    let mut patience = 0;
    while seen.len() < COUNT {
        let mut into = Vec::new();
        patience = (patience + 1) % 5;
        tokio::select! {
            biased;
            fetched = fetching.fetch(7, &mut into) => fetched.unwrap(),
            () = polls(patience) => {}
        }
        for delivery in into {
            assert_eq!(delivery.attempt(), 1);
            seen.push(text(&delivery).trim().parse::<usize>().unwrap());
            settle(&mut settling, [delivery], Verdict::Ack).await;
        }
    }

    publishing.await.unwrap();
    assert_eq!(seen, (0..COUNT).collect::<Vec<_>>());
    assert!(setting.store.is_empty());
}

async fn polls(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn closing_gives_back_what_was_not_handed_out_and_keeps_what_was() {
    let setting = Setting::new().await;
    let (mut fetching, mut settling) = setting.open().await;
    for n in 0..4 {
        setting.publish(&n.to_string()).await;
    }
    let handed_out = fetch_one(&mut fetching).await;
    // A fetch is under way, and its answer with the other three arrives after the fetch was dropped.
    let mut into = Vec::new();
    tokio::select! {
        biased;
        _ = fetching.fetch(10, &mut into) => unreachable!("the server has had no turn to answer in"),
        () = std::future::ready(()) => {}
    }
    setting.connection.ping().await.unwrap();

    fetching.close().await.unwrap();

    let (mut other, mut other_settling) = setting.open().await;
    let given_back = fetch(&mut other, 10).await;
    let attempts: Vec<_> = given_back
        .iter()
        .map(|delivery| (text(delivery), delivery.attempt()))
        .collect();
    assert_eq!(attempts, [("1", 1), ("2", 1), ("3", 1)]);
    assert_eq!(settle(&mut settling, [handed_out], Verdict::Ack).await, 0);
    settle(&mut other_settling, given_back, Verdict::Ack).await;
    assert!(setting.store.is_empty());
}

#[tokio::test]
async fn closing_while_the_server_waits_for_messages_is_quick() {
    let setting = Setting::new().await;
    let (mut fetching, settling) = setting.open().await;
    let in_vain = timeout(Duration::from_millis(50), fetch_one(&mut fetching)).await;
    assert!(in_vain.is_err());

    let closing = async {
        fetching.close().await.unwrap();
        settling.close().await.unwrap();
        setting.connection.close().await;
    };
    timeout(Duration::from_secs(2), closing)
        .await
        .expect("closed before the long poll ends");

    let refused = publish(&setting.publisher, "too late").await.unwrap_err();
    assert_eq!(refused.first().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn what_a_dead_process_had_in_hand_is_delivered_again_and_counted() {
    let setting = Setting::new().await;
    let (mut fetching, mut settling) = setting.open().await;
    setting.publish("poison").await;
    let lost = fetch_one(&mut fetching).await;

    drop(fetching);

    let (mut other, _other_settling) = setting.open().await;
    let again = fetch_one(&mut other).await;
    assert_eq!((text(&again), again.attempt()), ("poison", 2));
    assert_eq!(
        settle(&mut settling, [lost], Verdict::Ack).await,
        1,
        "the late receipt is stale"
    );
    assert_eq!(setting.store.len(), 1, "and settles nothing");
}

#[tokio::test]
async fn all_goes_on_after_the_server_restarts() {
    let setting = Setting::new().await;
    let (mut fetching, mut settling) = setting.open().await;
    setting.publish("before").await;
    let lost = fetch_one(&mut fetching).await;
    let address = setting.server.address();

    setting.server.stop().await;

    let error = fetching.fetch(1, &mut Vec::new()).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let error = fetching.recover().await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains(&address.to_string()),
        "{error}"
    );
    let error = publish(&setting.publisher, "into the void").await.unwrap_err();
    assert!(error.first().is_transient(), "{error:?}");
    let mut finished = vec![(lost.into_receipt(), Verdict::Ack)];
    settling.settle(&mut finished).await.unwrap_err();
    assert_eq!(finished.len(), 1, "what was not settled is kept to be settled again");

    let _server = Server::start(address, setting.store.clone()).await.unwrap();

    fetching.recover().await.unwrap();
    let again = fetch_one(&mut fetching).await;
    assert_eq!((text(&again), again.attempt()), ("before", 2));
    assert_eq!(settling.settle(&mut finished).await.unwrap().stale, 1);
    assert_eq!(settle(&mut settling, [again], Verdict::Ack).await, 0);
    publish(&setting.publisher, "after").await.unwrap();
    assert_eq!(text(&fetch_one(&mut fetching).await), "after");
}

#[tokio::test]
async fn a_publisher_does_not_send_into_a_link_that_has_ended() {
    let setting = Setting::new().await;
    let address = setting.server.address();
    setting.server.stop().await;
    let _server = Server::start(address, setting.store.clone()).await.unwrap();
    setting.broker.connect().await.unwrap();

    publish(&setting.publisher, "over a new link").await.unwrap();

    assert_eq!(setting.store.len(), 1);
}

#[tokio::test]
async fn subscribers_of_one_queue_share_it() {
    let setting = Setting::new().await;
    let (mut one, _settle_one) = setting.open().await;
    let (mut other, _settle_other) = setting.open().await;
    for n in 0..10 {
        setting.publish(&n.to_string()).await;
    }

    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        assert!(seen.insert(text(&fetch_one(&mut one).await).to_owned()));
        assert!(seen.insert(text(&fetch_one(&mut other).await).to_owned()));
    }
    assert_eq!(seen.len(), 10);
}

#[tokio::test]
async fn each_message_of_a_publish_that_cannot_be_sent_is_named() {
    let setting = Setting::new().await;
    let huge = vec![0; 9 << 20];
    let messages = [
        Outgoing::new("orders", b"fits"),
        Outgoing::new("orders", &huge),
        Outgoing::new("", b"nowhere"),
        Outgoing::new("orders", b"later").with_delay(Duration::from_secs(1)),
        Outgoing::new("orders", b"fits too"),
    ];

    let error = setting.publisher.publish(&messages).await.unwrap_err();

    let kinds: Vec<_> = (0..5)
        .map(|position| error.for_message(position).map(TransportError::kind))
        .collect();
    let (too_large, invalid) = (Some(ErrorKind::TooLarge), Some(ErrorKind::Invalid));
    assert_eq!(kinds, [None, too_large, invalid, invalid, None]);
    assert_eq!(setting.store.len(), 2);
}

#[tokio::test]
async fn an_absent_server_is_worth_another_try() {
    let setting = Setting::new().await;
    setting.server.stop().await;
    let error = setting.broker.connect().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn what_is_no_address_is_not() {
    let error = QueueBroker::new("queues.example").connect().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("`queues.example`"), "{error}");
}

#[tokio::test]
async fn a_server_of_another_kind_is_recognised() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broker = QueueBroker::new(listener.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read(&mut [0; 64]).await;
    });

    let error = broker.connect().await.err().unwrap();

    assert_eq!(error.kind(), ErrorKind::Incompatible);
}

#[tokio::test]
async fn a_server_that_falls_silent_is_lost_within_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broker = QueueBroker::new(listener.local_addr().unwrap().to_string()).deadline(Duration::from_millis(50));

    let error = timeout(Duration::from_secs(2), broker.connect())
        .await
        .expect("given up in time")
        .err()
        .unwrap();

    assert_eq!(error.kind(), ErrorKind::Timeout);
}

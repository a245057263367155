//! Publishing: transactions, messages that are stored once, many at a time, and deadlines.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod support;

use std::time::Duration;

use ruststream::message::{HeaderMap, OptionSet, Outgoing, header};
use ruststream::transport::{Broker as _, Connection as _, ErrorKind, Publish as _, PublishError, Verdict};
use ruststream_fred::{Form, RedisBroker, RedisConnection, RedisPublish, RedisStream};
use servers::{Kind, Proxy};
use support::{Reader, Server, eventually, numbers, payloads};
use tokio::time::Instant;

fn options(options: RedisPublish) -> OptionSet {
    let mut set = OptionSet::new();
    set.insert(options);
    set
}

fn with_id(id: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::MESSAGE_ID, id.to_owned());
    headers
}

async fn publish(connection: &RedisConnection, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
    connection.publisher().publish(messages).await
}

#[tokio::test]
async fn a_transaction_stores_all_or_none() {
    let server = Server::start();
    let connection = server.connect().await;
    let stream = options(RedisPublish::default().transaction());
    let list = options(RedisPublish::default().transaction().form(Form::List));
    let all = [
        Outgoing::new("orders", b"1").with_options(&stream),
        Outgoing::new("jobs", b"2").with_options(&list),
        Outgoing::new("later", b"3")
            .with_options(&stream)
            .with_delay(Duration::from_millis(50)),
    ];

    publish(&connection, &all).await.unwrap();

    assert_eq!(server.length("orders"), 1);
    assert_eq!(server.cli(&["LLEN", "jobs"]).trim(), "1");
    let mut later = Reader::open(RedisStream::new("later"), &connection).await;
    let taken = later.take(1).await;
    assert_eq!(payloads(&taken), ["3"]);
    later.end(taken, Verdict::Ack).await;

    // A list is where a stream is to be.
    server.cli(&["DEL", "later"]);
    server.cli(&["LPUSH", "later", "x"]);
    let others = [all[0], all[1], Outgoing::new("later", b"3").with_options(&stream)];
    let error = publish(&connection, &others).await.unwrap_err();
    for position in 0..3 {
        let error = error.for_message(position).expect("none is stored");
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    }
    assert_eq!(server.length("orders"), 1);
    assert_eq!(server.cli(&["LLEN", "jobs"]).trim(), "1");

    // One that can be no message keeps back the others of its transaction, and no one else.
    let wrong = [
        all[0],
        Outgoing::new("", b"").with_options(&stream),
        Outgoing::new("plain", b"4"),
    ];
    let error = publish(&connection, &wrong).await.unwrap_err();
    assert!(error.for_message(0).is_some() && error.for_message(1).is_some());
    assert!(error.for_message(2).is_none(), "{error}");
    assert_eq!((server.length("orders"), server.length("plain")), (1, 1));
}

#[tokio::test]
async fn a_message_is_stored_once_by_its_id() {
    let server = Server::start();
    let connection = server.connect().await;
    let once = |form| options(RedisPublish::default().form(form).once(Duration::from_millis(400)));
    let (seven, eight) = (with_id("7"), with_id("8"));
    let forms = [("orders", once(Form::Stream)), ("jobs", once(Form::List))];
    for (name, options) in &forms {
        for headers in [&seven, &seven, &eight, &seven] {
            let message = Outgoing::new(name, b"1").with_headers(headers).with_options(options);
            publish(&connection, &[message]).await.unwrap();
        }
    }
    let stored = || (server.length("orders"), server.cli(&["LLEN", "jobs"]).trim().to_owned());
    assert_eq!(stored(), (2, "2".to_owned()));

    // Delayed ones too.
    let message = Outgoing::new("later", b"1")
        .with_headers(&seven)
        .with_options(&forms[0].1);
    let message = message.with_delay(Duration::from_hours(1));
    for _ in 0..2 {
        publish(&connection, &[message]).await.unwrap();
    }
    assert_eq!(server.cli(&["ZCARD", "{later}:ruststream:delayed"]).trim(), "1");

    // The time passes, and no key is left.
    eventually(
        || server.cli(&["--scan", "--pattern", "*:once:*"]).trim().to_owned(),
        String::is_empty,
    )
    .await;
    let again = Outgoing::new("orders", b"1")
        .with_headers(&seven)
        .with_options(&forms[0].1);
    publish(&connection, &[again]).await.unwrap();
    assert_eq!(server.length("orders"), 3);

    let nameless = Outgoing::new("orders", b"1").with_options(&forms[0].1);
    let error = publish(&connection, &[nameless]).await.unwrap_err();
    assert!(error.to_string().contains("message-id"), "{error}");
}

fn cluster() -> RedisBroker {
    RedisBroker::cluster([servers::shared(Kind::RedisCluster).unwrap()])
}

#[tokio::test]
async fn on_a_cluster_a_transaction_is_of_one_slot() {
    let connection = cluster().connect().await.unwrap();
    let number = fastrand::u64(..);
    let tagged = |what: &str| format!("{{shop-{number}}}{what}");
    let (orders, receipts, elsewhere) = (tagged("orders"), tagged("receipts"), format!("elsewhere-{number}"));
    let together = options(RedisPublish::default().transaction());
    let to = |name| Outgoing::new(name, b"1").with_options(&together);

    publish(&connection, &[to(&orders), to(&receipts)]).await.unwrap();
    let error = publish(&connection, &[to(&orders), to(&elsewhere)]).await.unwrap_err();

    assert!(error.to_string().contains("hash tag"), "{error}");
    let mut reader = Reader::open(RedisStream::new(&orders), &connection).await;
    assert_eq!(reader.take(1).await.len(), 1);
    assert!(
        reader.is_quiet_for(Duration::from_millis(100)).await,
        "the second left nothing"
    );
}

#[tokio::test]
async fn messages_of_one_call_reach_all_nodes_of_a_cluster_in_order() {
    let connection = cluster().connect().await.unwrap();
    let number = fastrand::u64(..);
    let names: Vec<_> = (0..12).map(|name| format!("many-{number}-{name}")).collect();
    let bodies = numbers(0..100);
    let all = bodies
        .iter()
        .flat_map(|body| names.iter().map(move |name| (name, body)));
    let messages: Vec<_> = all.map(|(name, body)| Outgoing::new(name, body.as_bytes())).collect();

    publish(&connection, &messages).await.unwrap();

    for name in &names {
        let mut reader = Reader::open(RedisStream::new(name), &connection).await;
        let taken = reader.take(100).await;
        assert_eq!(payloads(&taken), bodies, "{name}");
        reader.end(taken, Verdict::Ack).await;
    }
}

/// All of them are told by one deadline of their link, and the next publish makes a new one.
#[tokio::test]
async fn publishes_without_an_answer_end_by_their_deadline() {
    let server = Server::start();
    let proxy = Proxy::to(server.instance.port()).unwrap();
    let deadline = Duration::from_millis(800);
    let broker = RedisBroker::standalone(format!("redis://127.0.0.1:{}", proxy.port())).command_timeout(deadline);
    let connection = broker.connect().await.unwrap();
    publish(&connection, &[Outgoing::new("orders", b"0")]).await.unwrap();
    proxy.stall();

    let began = Instant::now();
    let publishers = (0..20).map(|_| {
        let publisher = connection.publisher();
        tokio::spawn(async move { publisher.publish(&[Outgoing::new("orders", b"1")]).await })
    });
    for publisher in publishers.collect::<Vec<_>>() {
        let error = publisher.await.unwrap().unwrap_err();
        assert_eq!(error.for_message(0).unwrap().kind(), ErrorKind::Timeout, "{error}");
    }
    let took = began.elapsed();
    assert!(took >= deadline && took < deadline * 2, "{took:?}");

    proxy.heal();
    publish(&connection, &[Outgoing::new("orders", b"2")]).await.unwrap();
}

/// A publish that is dropped half way keeps no other from being confirmed.
#[tokio::test]
async fn a_publish_that_is_dropped_leaves_the_others_alone() {
    let server = Server::start();
    let connection = server.connect().await;
    for round in 0..200u32 {
        let (one, other) = (connection.publisher(), connection.publisher());
        let cut = tokio::spawn(async move { one.publish(&[Outgoing::new("cut", b"1")]).await });
        let kept = tokio::spawn(async move { other.publish(&[Outgoing::new("kept", b"1")]).await });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        cut.abort();
        kept.await.unwrap().unwrap();
    }
    assert_eq!(server.length("kept"), 200);
}

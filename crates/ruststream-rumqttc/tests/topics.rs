//! Sessions, overlapping filters, back-pressure and properties, by the calls of the transport.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod support;

use std::time::Duration;

use ruststream::message::{HeaderMap, OptionSet, Outgoing, header};
use ruststream::transport::{Broker, Connection, Delivery, Fetch, Publish, Source};
use ruststream_rumqttc::{MessageFields, MqttOptions, QoS, TopicFilter};
use servers::Proxy;
use support::{Reader, broker, payloads, publish, server};

/// How long a test watches for what is not to happen.
const QUIET: Duration = Duration::from_millis(400);

#[tokio::test]
async fn each_of_two_overlapping_filters_gets_a_message_once_and_both_have_to_settle_it() {
    let server = server(false);
    let proxy = Proxy::to(server.port()).unwrap();
    let connection = broker(proxy.port()).connect().await.unwrap();
    let mut wide = Reader::open(TopicFilter::new("devices/+/state"), &connection).await;
    let mut narrow = Reader::open(TopicFilter::new("devices/7/state"), &connection).await;
    let mut twin = Reader::open(TopicFilter::new("devices/7/state"), &connection).await;
    publish(&connection, "devices/7/state", &["on"]).await;
    let seen = wide.take(1).await;
    for reader in [&mut narrow, &mut twin] {
        let seen = reader.take(1).await;
        assert_eq!(reader.ack(seen).await.stale, 0);
        assert!(reader.is_quiet_for(QUIET).await, "the message came twice");
    }
    assert!(wide.is_quiet_for(QUIET).await, "the message came twice");
    // One of them has not settled it: to the server it is not acknowledged, and comes again where it was not settled at the least.
    proxy.cut();
    let again = wide.take(1).await;
    assert_eq!((again[0].attempt(), payloads(&again)), (2, vec!["on".to_owned()]));
    assert_eq!(
        wide.ack(seen).await.stale,
        1,
        "a receipt of a lost link settled something"
    );
    wide.ack(again).await;
    for reader in [&mut narrow, &mut twin] {
        let again = reader.take_if_any(QUIET).await;
        reader.ack(again).await;
    }
    connection.ping().await.unwrap();
    proxy.cut();
    assert!(
        wide.is_quiet_after_recovery(QUIET).await,
        "it was acknowledged, and came again"
    );
}

#[tokio::test]
async fn acknowledgements_go_out_of_order() {
    let server = server(false);
    let proxy = Proxy::to(server.port()).unwrap();
    let connection = broker(proxy.port()).connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("orders"), &connection).await;
    publish(&connection, "orders", &["0", "1", "2", "3"]).await;
    let mut taken = reader.take(4).await;
    let last = taken.split_off(2);
    reader.ack(last).await;
    connection.ping().await.unwrap();
    proxy.cut();
    let again = reader.take(2).await;
    assert_eq!(payloads(&again), ["0", "1"]);
    assert!(again.iter().all(|delivery| delivery.attempt() == 2));
    reader.ack(again).await;
    assert!(reader.is_quiet_for(QUIET).await);
}

#[tokio::test]
async fn a_fixed_client_finds_what_it_left_and_what_came_while_it_was_away() {
    let server = server(false);
    let named = broker(server.port()).client_id("billing");
    let first = named.connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("orders/+"), &first).await;
    let other = broker(server.port()).connect().await.unwrap();
    publish(&other, "orders/new", &["0", "1", "2"]).await;
    let mut taken = reader.take(3).await;
    let left = taken.split_off(1);
    reader.ack(taken).await;
    first.ping().await.unwrap();
    // As if its process had died.
    drop((left, reader, first));
    publish(&other, "orders/new", &["3"]).await;

    let second = named.connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("orders/+"), &second).await;
    let rest = reader.take(3).await;
    assert_eq!(payloads(&rest), ["1", "2", "3"]);
    let attempts: Vec<_> = rest.iter().map(Delivery::attempt).collect();
    assert_eq!(attempts, [2, 2, 1]);
    assert_eq!(reader.ack(rest).await.stale, 0);
    second.close().await;

    let third = named.connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("orders/+"), &third).await;
    assert!(reader.is_quiet_for(QUIET).await, "it was acknowledged, and came again");
}

#[tokio::test]
async fn the_server_keeps_what_goes_beyond_the_receive_maximum() {
    let server = server(false);
    let connection = broker(server.port()).receive_maximum(5).connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("orders"), &connection).await;
    let all: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    publish(&connection, "orders", &all).await;
    let taken = reader.take(5).await;
    assert!(reader.is_quiet_for(QUIET).await, "more than 5 in hand");
    let mut seen = payloads(&taken);
    reader.ack(taken).await;
    // Mosquitto 2.0.11 then sends all that it has, whatever the maximum.
    while seen.len() < 20 {
        let taken = reader.next(5).await;
        seen.extend(payloads(&taken));
        reader.ack(taken).await;
    }
    assert_eq!(seen, all);
}

#[tokio::test]
async fn at_qos_0_the_oldest_are_dropped_and_publishing_goes_on() {
    let server = server(false);
    let connection = broker(server.port()).receive_maximum(10).connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("ticks").quality(QoS::AtMostOnce), &connection).await;
    let all: Vec<_> = (0..50).map(|number| number.to_string()).collect();
    publish(&connection, "ticks", &all).await;
    // The server sends to this connection in order: all of them are here before the answer.
    connection.ping().await.unwrap();
    let mut taken = Vec::new();
    reader.fetch.fetch(100, &mut taken).await.unwrap();
    assert_eq!(payloads(&taken), all[40..]);
}

#[tokio::test]
async fn what_a_subscription_leaves_goes_to_the_next_on_the_same_connection() {
    let server = server(false);
    let connection = broker(server.port()).connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("orders"), &connection).await;
    publish(&connection, "orders", &["0", "1", "2"]).await;
    let in_hand = reader.take(1).await;
    connection.ping().await.unwrap();
    drop((in_hand, reader));
    let mut reader = Reader::open(TopicFilter::new("orders"), &connection).await;
    let again = reader.take(3).await;
    assert_eq!(payloads(&again), ["0", "1", "2"]);
    assert_eq!(again.iter().map(Delivery::attempt).collect::<Vec<_>>(), [2, 1, 1]);
    reader.ack(again).await;
}

#[tokio::test]
async fn retained_messages_and_properties_arrive() {
    let server = server(false);
    let connection = broker(server.port()).connect().await.unwrap();
    let mut options = OptionSet::new();
    options.insert(
        MqttOptions::new()
            .retain()
            .expiry(Duration::from_mins(1))
            .text()
            .quality(QoS::ExactlyOnce),
    );
    let headers: HeaderMap = [
        (header::CONTENT_TYPE, "text/plain"),
        (header::REPLY_TO, "answers/1"),
        ("region", "eu"),
    ]
    .into_iter()
    .collect();
    let message = Outgoing::new("devices/7/state", b"on")
        .with_headers(&headers)
        .with_options(&options);
    connection.publisher().publish(&[message]).await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("devices/+/#").quality(QoS::ExactlyOnce), &connection).await;
    let taken = reader.take(1).await;
    assert_eq!(taken[0].headers(), &headers);
    let fields = taken[0].fields().downcast_ref::<MessageFields>().unwrap();
    assert_eq!(
        (fields.topic(), fields.retained(), fields.quality()),
        ("devices/7/state", true, QoS::ExactlyOnce)
    );
    assert_eq!(fields.levels("devices/+/#"), Some(vec!["7", "state"]));
    let properties = fields.properties().unwrap();
    assert_eq!(properties.response_topic.as_deref(), Some("answers/1"));
    assert_eq!(properties.payload_format_indicator, Some(1));
    assert!(
        properties
            .message_expiry_interval
            .is_some_and(|seconds| (1..=60).contains(&seconds))
    );
    reader.ack(taken).await;
}

#[tokio::test]
async fn a_message_that_the_client_does_not_take_is_kept_from_it_and_the_link_lives() {
    let server = server(false);
    let small = broker(server.port()).maximum_packet(1024).connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("orders"), &small).await;
    let large = broker(server.port()).connect().await.unwrap();
    publish(&large, "orders", &[vec![b'x'; 4096], b"small".to_vec()]).await;
    let taken = reader.take(1).await;
    assert_eq!(payloads(&taken), ["small"]);
    reader.ack(taken).await;
}

#[tokio::test]
async fn what_cannot_be_published_is_told() {
    let server = server(false);
    let connection = broker(server.port()).connect().await.unwrap();
    let publisher = connection.publisher();
    let wrong = [
        Outgoing::new("a/+", b""),
        Outgoing::new("", b""),
        Outgoing::new("a", b"").with_delay(Duration::from_secs(1)),
        Outgoing::new("a", b"fine"),
    ];
    let error = publisher.publish(&wrong).await.unwrap_err();
    for place in 0..3 {
        assert!(
            error.for_message(place).is_some_and(|error| !error.is_transient()),
            "{place}"
        );
    }
    assert!(error.for_message(3).is_none());
    let refused = TopicFilter::new("a/#/b").open(&connection).await.unwrap_err();
    assert!(
        !refused.is_transient() && refused.to_string().contains("a/#/b"),
        "{refused}"
    );
}

#[tokio::test]
async fn clients_of_one_name_are_told_of_each_other() {
    let server = server(false);
    let named = broker(server.port()).client_id("twin");
    let first = named.connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("orders"), &first).await;
    let _second = named.connect().await.unwrap();
    let error = reader.fetch.fetch(1, &mut Vec::new()).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("same client id"), "{error}");
}

#[tokio::test]
async fn at_qos_0_what_waited_for_a_session_is_there_when_its_subscription_opens() {
    let server = server(false);
    let named = || broker(server.port()).client_id("named");
    let filter = || TopicFilter::new("states").quality(QoS::AtMostOnce);
    let connection = named().connect().await.unwrap();
    drop(Reader::open(filter(), &connection).await);
    connection.close().await;
    let other = broker(server.port()).connect().await.unwrap();
    publish(&other, "states", &["one", "two"]).await;
    let connection = named().connect().await.unwrap();
    // The answer comes behind all that waited.
    connection.ping().await.unwrap();
    let mut reader = Reader::open(filter(), &connection).await;
    assert_eq!(payloads(&reader.take(2).await), ["one", "two"]);
}

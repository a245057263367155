//! MQTT 3.1.1: what is as in MQTT 5, what travels otherwise, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod support;

use std::time::Duration;

use ruststream::message::{HeaderMap, OptionSet, Outgoing, header};
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection, Delivery, Publish, Source};
use ruststream_rumqttc::{MessageFields, MqttBroker, MqttConnection, MqttOptions, MqttVersion, QoS, TopicFilter};
use servers::Kind;
use support::{PATIENCE, Reader, payloads, publish, until};

fn broker() -> MqttBroker {
    MqttBroker::new(servers::shared(Kind::Mosquitto).unwrap())
}

fn old() -> MqttBroker {
    broker().version(MqttVersion::V3_1_1)
}

async fn connections() -> (MqttConnection, MqttConnection) {
    (old().connect().await.unwrap(), broker().connect().await.unwrap())
}

#[tokio::test]
async fn headers_reach_those_who_speak_either_version() {
    let (old, new) = connections().await;
    let mut readers = [
        Reader::open(TopicFilter::new("old/headers"), &old).await,
        Reader::open(TopicFilter::new("old/headers"), &new).await,
    ];
    let mut headers = HeaderMap::new();
    headers.append(header::CONTENT_TYPE, "application/json");
    headers.append("tenant", "7");
    headers.append("tenant", &b"\xff\0"[..]);
    let message = Outgoing::new("old/headers", b"{}").with_headers(&headers);
    old.publisher().publish(&[message]).await.unwrap();
    for reader in &mut readers {
        let taken = reader.next(1).await;
        assert_eq!(payloads(&taken), ["{}"]);
        assert_eq!(*taken[0].headers(), headers);
    }
}

#[tokio::test]
async fn json_without_other_headers_is_its_payload_on_the_wire() {
    let (old, new) = connections().await;
    let mut reader = Reader::open(TopicFilter::new("old/plain"), &new).await;
    let mut headers = HeaderMap::new();
    headers.append(header::CONTENT_TYPE, "application/json");
    let message = Outgoing::new("old/plain", b"{}").with_headers(&headers);
    old.publisher().publish(&[message]).await.unwrap();
    let taken = reader.next(1).await;
    assert_eq!(payloads(&taken), ["{}"]);
    // An envelope would have brought it.
    assert!(taken[0].headers().is_empty());
}

#[tokio::test]
async fn each_of_overlapping_subscriptions_gets_a_message_once() {
    let connection = old().connect().await.unwrap();
    let sources = ["old/over/#", "old/over/+", "old/over/a"];
    let mut readers = Vec::new();
    for source in sources {
        readers.push(Reader::open(TopicFilter::new(source), &connection).await);
    }
    publish(&connection, "old/over/a", &["one", "two"]).await;
    for reader in &mut readers {
        let taken = reader.take(2).await;
        assert_eq!(payloads(&taken), ["one", "two"]);
        let fields = taken[0].fields().downcast_ref::<MessageFields>().unwrap();
        assert_eq!((fields.topic(), fields.quality()), ("old/over/a", QoS::AtLeastOnce));
        reader.ack(taken).await;
    }
    for reader in &mut readers {
        assert!(reader.is_quiet_for(Duration::from_millis(200)).await);
    }
}

#[tokio::test]
async fn what_the_old_version_has_not_is_refused_with_a_word() {
    let connection = old().connect().await.unwrap();
    let error = TopicFilter::new("old/no")
        .no_local()
        .open(&connection)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no_local"), "{error}");
    assert!(!error.is_transient());
    let _wide = TopicFilter::new("old/shared/#").open(&connection).await.unwrap();
    let shared = TopicFilter::new("old/shared/+").group("g");
    let error = shared.open(&connection).await.unwrap_err();
    assert!(error.to_string().contains("old/shared/#"), "{error}");
    let mut options = OptionSet::new();
    options.insert(MqttOptions::new().expiry(Duration::from_secs(9)));
    let message = Outgoing::new("old/no", b"x").with_options(&options);
    let error = connection.publisher().publish(&[message]).await.unwrap_err();
    assert!(error.to_string().contains("MQTT 3.1.1"), "{error}");
}

#[tokio::test]
async fn a_named_session_waits_and_a_clean_start_throws_it_away() {
    let named = || old().client_id("old-named-session");
    let connection = named().connect().await.unwrap();
    drop(Reader::open(TopicFilter::new("old/session"), &connection).await);
    connection.close().await;

    let publisher = broker().connect().await.unwrap();
    publish(&publisher, "old/session", &["waited"]).await;
    let connection = named().connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("old/session"), &connection).await;
    assert_eq!(payloads(&reader.next(1).await), ["waited"]);
    drop(reader);
    connection.close().await;

    // It was not acknowledged, and would come again.
    let connection = named().clean_start(true).connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("old/session"), &connection).await;
    assert!(reader.is_quiet_for(Duration::from_millis(300)).await);
    connection.close().await;
    named()
        .clean_start(true)
        .session_expiry(Duration::ZERO)
        .connect()
        .await
        .unwrap()
        .close()
        .await;
}

#[tokio::test]
async fn a_message_that_is_too_large_leaves_the_link_standing() {
    let (_, new) = connections().await;
    let old = old().maximum_packet(1000).connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("old/large"), &old).await;
    publish(&new, "old/large", &[vec![b'x'; 100_000], b"small".to_vec()]).await;
    assert_eq!(payloads(&reader.next(1).await), ["small"]);
}

#[derive(Clone, Default)]
struct Answers(std::sync::Arc<std::sync::Mutex<Vec<u64>>>);

#[subscriber("old/double", reply)]
async fn double(number: u64) -> u64 {
    number * 2
}

#[subscriber("old/answers")]
async fn note(number: u64, State(answers): State<Answers>) {
    answers.0.lock().unwrap().push(number);
}

#[tokio::test]
async fn a_service_takes_requests_and_publishes() {
    let answers = Answers::default();
    let running = RustStream::new(AppInfo::new("old", "1"))
        .state(answers.clone())
        .with_broker(old(), |broker| {
            broker.include(double);
            broker.include(note);
        })
        .start()
        .await
        .unwrap();
    let client = running.client().await.unwrap();
    let answer: u64 = client.request("old/double", &21_u64).await.unwrap();
    running.publisher().publish("old/answers", &answer).await.unwrap();
    until("the answer", PATIENCE, || *answers.0.lock().unwrap() == [42]).await;
    running.shutdown().await.unwrap();
}

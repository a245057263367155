//! An app tested without a server has its messages led as the server leads them, and its handlers see what they see there.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::conformance::unique_name;
use ruststream::message::header;
use ruststream::prelude::*;
use ruststream::testing::TestApp;
use ruststream::transport::{Broker, Delivery};
use ruststream_rumqttc::{Levels, MessageFields, MqttBroker, MqttOptions, QoS, TopicFilter};
use servers::Kind;
use support::{PATIENCE, Reader, until};

/// Which filter got which message: filter, topic, number, quality, retained.
type Seen = Arc<Mutex<Vec<(String, String, u64, QoS, bool)>>>;

#[subscriber("any")]
async fn note(number: u64, context: Context<'_>, State(seen): State<Seen>) {
    let fields: &MessageFields = context.fields().unwrap();
    seen.lock().unwrap().push((
        context.source().to_owned(),
        fields.topic().to_owned(),
        number,
        fields.quality(),
        fields.retained(),
    ));
}

fn app(url: &str, name: &str, seen: Seen) -> RustStream {
    let filter = |what: &str| TopicFilter::new(format!("{name}/{what}"));
    let sources = [
        filter("devices/+/state"),
        filter("devices/7/state"),
        filter("devices/7/state"),
        filter("devices/#"),
        filter("+/+/state"),
        filter("jobs/+").group("workers"),
        filter("jobs/+").group("workers"),
        filter("jobs/+").group("auditors"),
        filter("jobs/+").group("auditors"),
        filter("exact"),
    ];
    RustStream::new(AppInfo::new("routes", "1"))
        .state(seen)
        .with_broker(MqttBroker::new(url), |broker| {
            for source in sources {
                broker.include(note).source(source);
            }
        })
        .into()
}

/// What is published.
const CASES: [(&str, bool); 9] = [
    ("devices/7/state", false),
    ("devices/8/state", true),
    ("devices/8/other", false),
    ("devices", false),
    ("devices/7/state/x", false),
    ("jobs/1", false),
    ("jobs/2", false),
    ("jobs/2/deep", false),
    ("exact", true),
];

fn options(retain: bool) -> MqttOptions {
    if retain {
        MqttOptions::new().retain()
    } else {
        MqttOptions::new()
    }
}

fn sorted(seen: &Seen) -> Vec<String> {
    let mut seen: Vec<_> = seen.lock().unwrap().iter().map(|entry| format!("{entry:?}")).collect();
    seen.sort();
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_messages_go_where_the_server_would_lead_them() {
    let url = servers::shared(Kind::Mosquitto).unwrap();
    let name = unique_name();
    let (seen, stand_in) = (Seen::default(), Seen::default());
    let running = app(&url, &name, seen.clone()).start().await.unwrap();
    let test = TestApp::start(app(&url, &name, stand_in.clone())).await.unwrap();
    for (number, (topic, retain)) in (0u64..).zip(CASES) {
        let topic = format!("{name}/{topic}");
        let publishing = running.publisher().publish(topic.clone(), &number);
        publishing.options(options(retain)).await.unwrap();
        test.publish(topic, &number).options(options(retain)).await.unwrap();
    }
    test.settled().await;
    let expected = sorted(&stand_in);
    assert!(expected.len() == 16, "{expected:#?}");
    until("all messages", PATIENCE, || sorted(&seen).len() >= expected.len()).await;
    // What is not to come has had the time of all that was published before it.
    assert_eq!(sorted(&seen), expected);
    running.shutdown().await.unwrap();
    test.shutdown().await.unwrap();
}

#[tokio::test]
async fn without_a_server_what_cannot_be_published_is_told_too() {
    let test = TestApp::start(app("mqtt://nowhere", "x", Seen::default()))
        .await
        .unwrap();
    let error = test.publish("x/+", &1u64).await.unwrap_err();
    assert!(error.to_string().contains("wildcards"), "{error}");
    let error = test
        .publish("x/exact", &1u64)
        .delay(Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("kept back"), "{error}");
}

type States = Arc<Mutex<Vec<(u32, String, f64)>>>;

#[subscriber("devices/+/+/state")]
async fn state(value: f64, Levels((device, sensor)): Levels<(u32, String)>, State(states): State<States>) {
    states.lock().unwrap().push((device, sensor, value));
}

#[tokio::test]
async fn the_matched_levels_are_read_into_types() {
    let states = States::default();
    let app = RustStream::new(AppInfo::new("levels", "1"))
        .state(states.clone())
        .with_broker(MqttBroker::new("mqtt://nowhere"), |broker| {
            broker.include(state);
        });
    let test = TestApp::start(app).await.unwrap();
    test.publish("devices/7/heat/state", &21.5).await.unwrap();
    test.publish("devices/x/heat/state", &1.0).await.unwrap();
    test.settled().await;
    assert_eq!(*states.lock().unwrap(), [(7, "heat".to_owned(), 21.5)]);
    let dead = test.dead_letters("devices/+/+/state");
    assert!(dead[0].error.contains("devices/x/heat/state"), "{}", dead[0].error);
}

/// On a server: a message whose levels do not fit is a dead letter, though the name of the filter is no topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_a_filter_with_wildcards_have_a_topic() {
    let url = servers::shared(Kind::Mosquitto).unwrap();
    let name = unique_name();
    for (filter, place) in [("+/state", "_/state"), ("#", "_")] {
        let (filter, place) = (format!("{name}/{filter}"), format!("dead/{name}/{place}"));
        let other = MqttBroker::new(&url).connect().await.unwrap();
        let mut dead = Reader::open(TopicFilter::new(&place), &other).await;
        let running = RustStream::new(AppInfo::new("dead", "1"))
            .state(States::default())
            .with_broker(MqttBroker::new(&url), |broker| {
                broker.include(state).source(TopicFilter::new(&filter));
            })
            .start()
            .await
            .unwrap();
        running
            .publisher()
            .publish(format!("{name}/x/state"), &1.0)
            .await
            .unwrap();
        let letters = dead.take(1).await;
        let source = letters[0].headers().get_str(header::DEAD_SOURCE);
        assert_eq!(source, Some(&*filter));
        dead.ack(letters).await;
        assert!(dead.is_quiet_for(Duration::from_millis(200)).await);
        running.shutdown().await.unwrap();
    }
}

//! An app tested without a server has its messages led as the server leads them: each case runs on both.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::conformance::unique_name;
use ruststream::prelude::*;
use ruststream::publish::Publishing;
use ruststream::testing::TestApp;
use ruststream::transport::{ErrorKind, PublishError};
use ruststream_lapin::{Binding, Declaration, Exchange, LapinBroker, LapinPublish, Queue};
use servers::Kind;
use tokio::time::{sleep, timeout};

type Seen = Arc<Mutex<Vec<(String, u64)>>>;

#[subscriber("any")]
async fn note(number: u64, context: Context<'_>, State(seen): State<Seen>) {
    let queue = context.source().rsplit('.').next().unwrap().to_owned();
    seen.lock().unwrap().push((queue, number));
}

/// An app with exchanges of every type, whose names begin with `name`.
fn app(url: &str, name: &str, seen: Seen) -> RustStream {
    let named = |what: &str| format!("{name}.{what}");
    let queue = |what: &str| Queue::new(named(what));
    let broker = LapinBroker::new(url)
        .declare(Exchange::direct(named("direct")))
        .declare(Exchange::topic(named("topic")).alternate(&named("unrouted")))
        .declare(Exchange::fanout(named("unrouted")))
        .declare(Exchange::headers(named("headers")))
        .declare(Exchange::consistent_hash(named("hash")))
        .declare(Exchange::direct(named("inner")).internal())
        .declare(Exchange::direct("amq.direct").declaration(Declaration::Passive))
        .declare(Binding::between(named("direct"), named("topic")).routing_key("order.moved"))
        .declare(Binding::between(named("topic"), named("inner")).routing_key("inner.#"))
        // A circle: a message passes each exchange once.
        .declare(Binding::between(named("topic"), named("direct")).routing_key("order.moved"))
        .declare(queue("late").bound_to(named("direct"), "late"))
        .declare(Binding::new(named("direct"), named("late")).routing_key("later"));
    let sources = [
        queue("exact").bound_to(named("direct"), "a.b"),
        queue("both")
            .bound_to(named("direct"), "a.b")
            .bound_to(named("direct"), "c"),
        queue("orders").bound_to(named("topic"), "order.*"),
        queue("created").bound_to(named("topic"), "#.created"),
        queue("rest").bound_to(named("unrouted"), "ignored"),
        queue("within").bound_to(named("inner"), "inner.x"),
        queue("all").bound_by(
            Binding::new(named("headers"), "")
                .header("count", 3i64)
                .header("kind", true),
        ),
        queue("one").bound_by(
            Binding::new(named("headers"), "")
                .header("count", 7i64)
                .header("kind", false)
                .any_header(),
        ),
        queue("hash1").bound_to(named("hash"), "1"),
        queue("hash2").bound_to(named("hash"), "1"),
        queue("late"),
        queue("plain"),
        Queue::server_named("own.mine").bound_to(named("topic"), "order.mine"),
        Queue::server_named("own.mine").bound_to(named("topic"), "order.mine"),
    ];
    RustStream::new(AppInfo::new("routes", "1"))
        .state(seen)
        .with_broker(broker, |broker| {
            for source in sources {
                broker.include(note).source(source);
            }
        })
        .into()
}

/// What is published, and how.
fn cases(name: &str) -> Vec<(String, LapinPublish)> {
    let to = |exchange: &str| LapinPublish::to_exchange(format!("{name}.{exchange}"));
    let mut cases: Vec<(String, LapinPublish)> = [
        ("a.b", to("direct")),
        ("c", to("direct")),
        ("a.c", to("direct")),
        ("a.c", to("direct").mandatory(false)),
        ("order.created", to("topic")),
        ("order.x.created", to("topic")),
        ("nothing.such", to("topic")),
        ("order.moved", to("direct")),
        ("order.moved", to("topic")),
        ("inner.x", to("topic")),
        ("inner.x", to("inner")),
        ("", to("headers").header("count", 3i64).header("kind", true)),
        ("", to("headers").header("count", 3i32).header("kind", true)),
        ("", to("headers").header("count", 7i64).header("kind", true)),
        ("", to("headers").header("count", 4i64).header("kind", true)),
        ("", to("headers")),
        ("", to("unrouted")),
        ("later", to("direct")),
        ("order.mine", to("topic")),
        ("a", to("missing")),
        (
            "nothing.bound",
            LapinPublish::to_exchange("amq.direct").mandatory(false),
        ),
    ]
    .map(|(key, options)| (key.to_owned(), options))
    .into();
    cases.push((format!("{name}.plain"), LapinPublish::new()));
    cases
}

async fn answer(publishing: Publishing, options: LapinPublish) -> Option<ErrorKind> {
    let answer: Result<(), PublishError> = publishing.options(options).await;
    answer.err().map(|error| error.first().kind())
}

fn sorted(seen: &Seen) -> Vec<(String, u64)> {
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_messages_go_where_the_server_would_lead_them() {
    let url = servers::shared(Kind::Rabbit).unwrap();
    let name = unique_name();
    let seen = Seen::default();
    let running = app(&url, &name, seen.clone()).start().await.unwrap();
    let publisher = running.publisher();
    let mut answers = Vec::new();
    for (number, (key, options)) in (0u64..).zip(cases(&name)) {
        answers.push(answer(publisher.publish(key, &number), options).await);
    }
    let stand_in = Seen::default();
    let test = TestApp::start(app(&url, &name, stand_in.clone())).await.unwrap();
    for (number, (key, options)) in (0u64..).zip(cases(&name)) {
        let described = format!("{number}: `{key}` {options:?}");
        assert_eq!(
            answer(test.publish(key, &number), options).await,
            answers[number as usize],
            "{described}"
        );
    }
    test.settled().await;
    let expected = sorted(&stand_in);
    assert!(expected.len() == 19, "{expected:?}");
    let same = async {
        while sorted(&seen).len() < expected.len() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = timeout(Duration::from_secs(10), same).await;
    // What is not to come has had the time of all that was published before it.
    assert_eq!(sorted(&seen), expected);
    running.shutdown().await.unwrap();
    test.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_key_has_one_queue_of_a_consistent_hash() {
    let seen = Seen::default();
    let test = TestApp::start(app("amqp://nowhere", "x", seen.clone())).await.unwrap();
    for round in 0..2 {
        for number in 0..100u64 {
            let publishing = test.publish(format!("key-{number}"), &number);
            let answered = answer(publishing, LapinPublish::to_exchange("x.hash")).await;
            assert_eq!(answered, None, "round {round}");
        }
    }
    test.settled().await;
    let seen = sorted(&seen);
    assert_eq!(seen.len(), 200);
    for queue in ["hash1", "hash2"] {
        let mine: Vec<_> = seen.iter().filter(|(name, _)| name == queue).collect();
        assert!(mine.len() > 40, "{} of 200 in {queue}", mine.len());
        assert!(
            mine.chunks(2).all(|twice| twice[0] == twice[1]),
            "a key was in both queues"
        );
    }
}

#[tokio::test]
async fn readers_of_one_queue_share_it_and_those_of_a_stream_do_not() {
    let seen = Seen::default();
    let app = RustStream::new(AppInfo::new("routes", "1"))
        .state(seen.clone())
        .with_broker(LapinBroker::new("amqp://nowhere"), |broker| {
            broker.include(note).source(Queue::new("q.shared"));
            broker.include(note).source(Queue::new("q.shared"));
            broker.include(note).source(Queue::new("q.log").stream().reader("one"));
            broker.include(note).source(Queue::new("q.log").stream().reader("two"));
            broker.include(note).source(Queue::new("q.log").stream().reader("two"));
        });
    let test = TestApp::start(app).await.unwrap();
    for number in 0..5u64 {
        test.publish("q.shared", &number).await.unwrap();
        test.publish("q.log", &number).await.unwrap();
    }
    test.settled().await;
    let count = |queue: &str| sorted(&seen).iter().filter(|(name, _)| name == queue).count();
    assert_eq!((count("shared"), count("log")), (5, 10));
}

#[subscriber("typed")]
async fn typed(number: u64, context: Context<'_>, State(seen): State<Seen>) {
    let count = context.headers().get_str("count").unwrap_or("none").to_owned();
    seen.lock().unwrap().push((count, number));
}

#[tokio::test]
async fn headers_of_a_publish_are_seen_by_its_readers() {
    let seen = Seen::default();
    let app = RustStream::new(AppInfo::new("routes", "1"))
        .state(seen.clone())
        .with_broker(LapinBroker::new("amqp://nowhere"), |broker| {
            broker.include(typed);
        });
    let test = TestApp::start(app).await.unwrap();
    test.publish("typed", &1u64)
        .options(LapinPublish::new().header("count", 3i64))
        .await
        .unwrap();
    test.settled().await;
    assert_eq!(sorted(&seen), [("3".to_owned(), 1)]);
}

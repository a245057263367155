//! Requests: their answers, their deadlines, and what becomes of them when nobody answers.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use common::{Gate, Record, handler, publish_with, start, within};
use ruststream::app::Running;
use ruststream::memory::Operation;
use ruststream::message::{HeaderMap, header};
use ruststream::prelude::*;
use ruststream::publish::Client;
use ruststream::transport::ErrorKind;
use tokio::task::JoinSet;
use tokio::time::Instant;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Quote {
    pieces: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Answer {
    cents: u64,
}

#[subscriber("quotes", reply)]
async fn quote(asked: Quote) -> Answer {
    // Later ones overtake.
    tokio::time::sleep(Duration::from_millis(100 - asked.pieces % 100)).await;
    Answer {
        cents: asked.pieces * 250,
    }
}

/// Answers in words, though a number is asked for.
#[subscriber("words", reply)]
async fn words(_: Quote) -> String {
    "two hundred".to_owned()
}

#[subscriber("failing", reply)]
async fn failing(_: Quote, context: Context<'_>) -> Result<Answer, &'static str> {
    match context.attempt() {
        1 => Err("not yet"),
        _ => Ok(Answer { cents: 1 }),
    }
}

async fn service(broker: &MemoryBroker) -> (Running, Client) {
    let running = start(broker.clone(), |scope| {
        scope.include(quote).workers(64);
        scope.include(words);
        scope.include(failing);
    })
    .await;
    let client = running.client().await.unwrap();
    (running, client)
}

#[tokio::test(start_paused = true)]
async fn each_of_many_requests_gets_its_own_answer() {
    let (running, client) = service(&MemoryBroker::new()).await;

    let mut asking = JoinSet::new();
    for pieces in 0..2_000 {
        let client = client.clone();
        asking.spawn(async move {
            let answer = client.request::<Quote, Answer>("quotes", &Quote { pieces }).await;
            (pieces, answer.unwrap())
        });
    }
    let answers = within(asking.join_all()).await;

    assert_eq!(answers.len(), 2_000);
    for (pieces, answer) in answers {
        assert_eq!(answer.cents, pieces * 250);
    }
    assert_eq!(client.strays(), 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_requests_gets_its_own_answer_on_many_threads() {
    let (running, client) = service(&MemoryBroker::new()).await;
    let other = running.client().await.unwrap();

    let mut asking = JoinSet::new();
    for pieces in 0..1_000 {
        let client = if pieces % 2 == 0 { &client } else { &other }.clone();
        asking.spawn(async move {
            let asked = client
                .request::<Quote, Answer>("quotes", &Quote { pieces })
                .timeout(Duration::from_mins(1));
            asked.await.unwrap().cents == pieces * 250
        });
    }

    assert!(asking.join_all().await.into_iter().all(|right| right));
    assert_eq!(client.strays() + other.strays(), 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_nobody_answers_ends_at_its_deadline() {
    let broker = MemoryBroker::new();
    let (running, client) = service(&broker).await;

    let began = Instant::now();
    let error = client
        .request::<_, Answer>("nobody", &Quote { pieces: 1 })
        .timeout(Duration::from_secs(2))
        .await
        .unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(error.to_string().contains("`nobody` within 2s"), "{error}");
    assert_eq!(began.elapsed().as_secs(), 2);

    let began = Instant::now();
    let error = client.request::<_, Answer>("nobody", &Quote { pieces: 1 }).await;
    assert!(error.unwrap_err().is_timeout());
    assert_eq!(began.elapsed().as_secs(), Client::DEFAULT_TIMEOUT.as_secs());
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_is_acked_and_counted() {
    let broker = MemoryBroker::new();
    let (running, client) = service(&broker).await;

    let asked = client.request::<_, Answer>("quotes", &Quote { pieces: 1 });
    assert!(asked.timeout(Duration::from_millis(10)).await.unwrap_err().is_timeout());
    // The first to be dropped in the middle.
    let asked = client.request::<_, Answer>("quotes", &Quote { pieces: 2 });
    assert!(tokio::time::timeout(Duration::from_millis(10), asked).await.is_err());
    within(broker.idle("quotes")).await;

    let answer = client.request::<_, Answer>("quotes", &Quote { pieces: 3 }).await;
    assert_eq!(answer.unwrap(), Answer { cents: 750 });
    assert_eq!(client.strays(), 2);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_of_a_stranger_is_acked_and_counted() {
    let broker = MemoryBroker::new();
    let (running, client) = service(&broker).await;
    let replies = running.health().subscriptions.pop().unwrap().name;

    for id in ["", "7", "-0", "somebody-0"] {
        let headers = HeaderMap::from_iter([(header::CORRELATION_ID, id.to_owned())]);
        publish_with(&broker, &replies, b"1", &headers).await;
    }
    publish_with(&broker, &replies, b"1", &HeaderMap::new()).await;

    within(async {
        while client.strays() < 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let replies = running.health().subscriptions.pop().unwrap();
    assert_eq!((replies.acked, replies.in_hand), (5, 0));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_kind_says_so() {
    let (running, client) = service(&MemoryBroker::new()).await;

    let error = client.request::<_, Answer>("words", &Quote { pieces: 1 }).await;

    let error = error.unwrap_err();
    assert!(error.is_undecodable(), "{error}");
    assert!(error.to_string().contains("`words`"), "{error}");
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_answers_at_its_next_attempt() {
    let (running, client) = service(&MemoryBroker::new()).await;

    let answer = client.request::<_, Answer>("failing", &Quote { pieces: 1 }).await;

    assert_eq!(answer.unwrap(), Answer { cents: 1 });
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_confirmed_says_why() {
    let broker = MemoryBroker::new();
    let (running, client) = service(&broker).await;

    broker.fail_next(Operation::Publish, 1, ErrorKind::Refused);
    let error = client.request::<_, Answer>("quotes", &Quote { pieces: 1 }).await;

    let error = error.unwrap_err();
    assert!(error.is_unpublished(), "{error}");
    assert!(std::error::Error::source(&error).is_some());
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_requests_that_wait_and_refuses_new_ones() {
    let (running, client) = service(&MemoryBroker::new()).await;
    let handle = running.handle();
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move {
            let asked = client.request::<_, Answer>("nobody", &Quote { pieces: 1 });
            asked.timeout(Duration::from_hours(1)).await
        })
    };
    tokio::task::yield_now().await;

    let began = Instant::now();
    running.shutdown().await.unwrap();

    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_closed(), "{error}");
    let error = client.request::<_, Answer>("quotes", &Quote { pieces: 1 }).await;
    assert!(error.unwrap_err().is_closed());
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(handle.client().await.unwrap_err().to_string().contains("shut down"));
}

#[tokio::test(start_paused = true)]
async fn a_running_app_that_is_dropped_ends_the_requests_that_wait() {
    let (running, client) = service(&MemoryBroker::new()).await;
    let asked = client.request::<_, Answer>("nobody", &Quote { pieces: 1 });
    let asked = tokio::spawn(asked.timeout(Duration::from_hours(1)).into_future());
    tokio::task::yield_now().await;

    drop(running);

    assert!(asked.await.unwrap().unwrap_err().is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_its_answer_while_the_app_drains() {
    let (broker, answers, gate) = (MemoryBroker::new(), Record::default(), Gate::closed());
    let (other, _client) = service(&broker).await;
    let ours = std::sync::Arc::new(std::sync::OnceLock::<Client>::new());
    let running = {
        let (ours, answers, gate) = (ours.clone(), answers.clone(), gate.clone());
        start(broker.clone(), |scope| {
            scope.include(handler("orders", move |_| {
                let (client, answers, gate) = (ours.get().unwrap().clone(), answers.clone(), gate.clone());
                async move {
                    answers.add(0);
                    gate.pass().await;
                    let answer = client.request::<_, Answer>("quotes", &Quote { pieces: 2 }).await;
                    answers.add(answer.unwrap().cents);
                }
            }));
        })
        .await
    };
    assert!(ours.set(running.client().await.unwrap()).is_ok());
    common::publish_ids(&broker, "orders", [1]).await;
    answers.reaches(1).await;

    running.stop();
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.let_go(1);
    running.shutdown().await.unwrap();

    assert_eq!(answers.all(), [0, 500]);
    other.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_place_for_replies_ends_with_the_last_clone() {
    let broker = MemoryBroker::new();
    let (running, client) = service(&broker).await;
    let replies = |running: &Running| {
        let subscriptions = running.health().subscriptions;
        let replies = subscriptions.iter().filter(|one| one.name.starts_with("replies.test."));
        replies.count()
    };
    let clone = client.clone();
    drop(client);
    let answer = clone.request::<_, Answer>("quotes", &Quote { pieces: 1 }).await;
    assert!(answer.is_ok());
    assert_eq!(replies(&running), 1);

    drop(clone);
    within(async {
        while replies(&running) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;

    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_carries_its_headers_and_key_and_where_to_answer() {
    let broker = MemoryBroker::new();
    let (running, client) = service(&broker).await;

    let asked = client
        .request::<_, Answer>("nobody", &Quote { pieces: 1 })
        .header("region", "eu")
        .headers(&HeaderMap::from_iter([(header::REPLY_TO, "elsewhere")]))
        .key("customer-7")
        .timeout(Duration::from_secs(1));
    assert!(asked.await.unwrap_err().is_timeout());

    let sent = broker.published("nobody").remove(0);
    assert_eq!(sent.key.as_deref(), Some(&b"customer-7"[..]));
    assert_eq!(sent.headers.get_str("region"), Some("eu"));
    let replies = running.health().subscriptions.pop().unwrap().name;
    assert_eq!(sent.headers.get_str(header::REPLY_TO), Some(&*replies));
    assert!(sent.headers.get_str(header::CORRELATION_ID).is_some());
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_the_app_has_not_is_named() {
    let (running, _client) = service(&MemoryBroker::new()).await;

    assert!(running.client_on("memory").await.is_ok());
    let error = running.client_on("sqlite").await.unwrap_err();

    assert!(error.to_string().contains("`sqlite`"), "{error}");
    running.shutdown().await.unwrap();
}

/// An answer whose reading panics.
#[derive(Debug)]
struct Explosive;

impl<'de> Deserialize<'de> for Explosive {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("it went off")
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_reading_panics_fails_its_request_alone() {
    let (running, client) = service(&MemoryBroker::new()).await;

    let error = client.request::<_, Explosive>("quotes", &Quote { pieces: 1 }).await;
    assert!(error.unwrap_err().is_undecodable());

    let answer = client.request::<_, Answer>("quotes", &Quote { pieces: 1 }).await;
    assert_eq!(answer.unwrap(), Answer { cents: 250 });
    running.shutdown().await.unwrap();
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn a_test_asks_the_app_as_its_callers_do() {
    use ruststream::testing::TestApp;

    let app = common::app(MemoryBroker::new(), |scope| {
        scope.include(quote);
    });
    let test = TestApp::start_paused(app).await.unwrap();
    let client = test.client().await.unwrap();

    let answer = client.request::<_, Answer>("quotes", &Quote { pieces: 4 }).await;
    test.settled().await;

    assert_eq!(answer.unwrap(), Answer { cents: 1_000 });
    assert_eq!(test.calls::<Quote>("quotes").len(), 1);
    assert!(test.raw_published("quotes").is_empty(), "the test itself published it");
    let error = client.request::<_, Answer>("nobody", &Quote { pieces: 4 }).await;
    assert!(error.unwrap_err().is_timeout());
    test.shutdown().await.unwrap();
}

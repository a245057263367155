//! Publishing: from handlers, from the app, one or many, and what is said when it fails.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use common::{Record, app, handler, publish_ids, publish_with, start, start_one, within};
use ruststream::memory::Operation;
use ruststream::message::{HeaderMap, header};
use ruststream::prelude::*;
use ruststream::transport::{ErrorKind, PublishError};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[subscriber("orders")]
async fn split(id: u64, lines: Out<u64>, notes: Out<str>) -> Result<(), PublishError> {
    let line = id * 10;
    lines
        .publish("lines", &line)
        .header("region", "eu")
        .header("trace", vec![0xff, 0x00])
        .key("customer-7")
        .delay(60 * SECOND)
        .await?;
    notes.publish(format!("notes.{id}"), "split").await
}

#[tokio::test(start_paused = true)]
async fn a_handler_publishes_with_headers_key_and_delay() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(split);
    })
    .await;

    publish_ids(&broker, "orders", [7]).await;
    within(broker.idle("orders")).await;

    let line = broker.published("lines").remove(0);
    assert_eq!(
        (&line.payload[..], line.key.as_deref()),
        (&b"70"[..], Some(&b"customer-7"[..]))
    );
    let headers: Vec<_> = line.headers.iter().collect();
    assert_eq!(
        headers,
        [
            ("content-type", &b"application/json"[..]),
            ("region", &b"eu"[..]),
            ("trace", &[0xff, 0x00][..])
        ]
    );
    assert_eq!(&broker.published("notes.7")[0].payload[..], b"\"split\"");

    let (begun, seen) = (Instant::now(), Record::<u64>::default());
    let lines = {
        let seen = seen.clone();
        start(broker.clone(), |scope| {
            scope.include(handler("lines", move |given| {
                seen.add(given.id());
                std::future::ready(())
            }));
        })
        .await
    };
    seen.reaches(1).await;
    assert_eq!(begun.elapsed().as_secs(), 60);
    lines.shutdown().await.unwrap();
    running.shutdown().await.unwrap();
}

#[subscriber("orders")]
async fn forward(id: u64, out: Out<u64>, State(own): State<bool>) -> Result<(), PublishError> {
    let publishing = out.publish("next", &id);
    if own {
        publishing.header("correlation-id", "own").await
    } else {
        publishing.await
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_message_causes_carries_its_correlation() {
    for own in [false, true] {
        let broker = MemoryBroker::new();
        let running = start_one(&broker, &own, forward, |_| {}).await;

        let both: HeaderMap = [("message-id", "m-1"), ("correlation-id", "c-1")].into_iter().collect();
        publish_with(&broker, "orders", b"1", &both).await;
        let identified: HeaderMap = [("message-id", "m-2")].into_iter().collect();
        publish_with(&broker, "orders", b"2", &identified).await;
        publish_ids(&broker, "orders", [3]).await;
        within(broker.idle("orders")).await;

        let ids: Vec<_> = broker
            .published("next")
            .iter()
            .map(|next| next.headers.get_str("correlation-id").map(str::to_owned))
            .collect();
        let inherited = [Some("c-1".to_owned()), Some("m-2".to_owned()), None];
        let set = [(); 3].map(|()| Some("own".to_owned()));
        assert_eq!(ids, if own { set } else { inherited });
        running.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_app_publishes_one_many_and_bytes() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |_| {}).await;
    let publisher = running.publisher();

    publisher.publish("one", &7u64).await.unwrap();
    publisher.publish_many("many", &[1u64, 2, 3]).await.unwrap();
    publisher.publish_many::<u64>("none", &[]).await.unwrap();
    publisher
        .publish_bytes("bytes", &b"\xff\x00"[..])
        .key("k")
        .await
        .unwrap();

    let payloads = |name: &str| -> Vec<Vec<u8>> {
        broker
            .published(name)
            .into_iter()
            .map(|one| one.payload.to_vec())
            .collect()
    };
    assert_eq!(payloads("one"), [b"7"]);
    assert_eq!(payloads("many"), [b"1", b"2", b"3"]);
    assert_eq!(broker.published("none"), []);
    assert_eq!(payloads("bytes"), [b"\xff\x00"]);
    let bytes = broker.published("bytes").remove(0);
    assert!(bytes.headers.is_empty());
    assert_eq!(
        broker.published("many")[2].headers.get_str("content-type"),
        Some("application/json")
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_it_is_awaited() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |_| {}).await;

    drop(running.publisher().publish("one", &7u64));

    assert_eq!(broker.held("one"), 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_published_is_said_with_its_reason() {
    let broker = MemoryBroker::new().capacity(1).max_payload(10).publish_deadline(SECOND);
    let running = start(broker.clone(), |_| {}).await;
    let publisher = running.publisher();

    let large = publisher.publish("orders", &"more than ten bytes").await.unwrap_err();
    assert!(large.first().is_too_large(), "{large}");

    publisher.publish("full", &1).await.unwrap();
    let full = publisher.publish("full", &2).await.unwrap_err();
    assert_eq!(full.first().kind(), ErrorKind::Busy, "{full}");

    let nowhere = publisher.publish("", &1).await.unwrap_err();
    assert_eq!(nowhere.first().kind(), ErrorKind::Invalid, "{nowhere}");

    broker.fail_next(Operation::Publish, 1, ErrorKind::Refused);
    let refused = publisher.publish("orders", &1).await.unwrap_err();
    assert_eq!(refused.first().kind(), ErrorKind::Refused, "{refused}");

    let many = publisher
        .publish_many("room", &["a", "more than ten bytes"])
        .await
        .unwrap_err();
    assert!(many.for_message(0).is_none());
    assert!(many.for_message(1).unwrap().is_too_large());
    running.shutdown().await.unwrap();
}

struct Formless;

impl Serialize for Formless {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it has no form"))
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_no_form_is_not_sent_and_none_of_its_company() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |_| {}).await;

    let error = running
        .publisher()
        .publish("orders", &Formless)
        .key("k")
        .await
        .unwrap_err();
    assert_eq!(error.first().kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("it has no form"), "{error}");
    let error = running
        .publisher()
        .publish_many("orders", &[Formless])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("it has no form"), "{error}");

    assert_eq!(broker.held("orders"), 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_fails_in_a_handler_is_that_handlers_error() {
    let broker = MemoryBroker::new();
    let running = start_one(&broker, &false, forward, |orders| {
        orders.retry(Retry::fixed(SECOND).attempts(3));
    })
    .await;

    publish_ids(&broker, "orders", [1]).await;
    broker.fail_next(Operation::Publish, 2, ErrorKind::Unavailable);
    within(broker.idle("orders")).await;
    assert_eq!(
        (broker.published("next").len(), common::health(&running).failed),
        (1, 2)
    );

    publish_ids(&broker, "orders", [2]).await;
    broker.fail_next(Operation::Publish, 3, ErrorKind::Unavailable);
    within(broker.idle("orders")).await;
    let dead = &broker.dead_letters("orders")[0].letter;
    assert!(dead.error.contains("the message was not published"), "{}", dead.error);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_broker_has_its_publisher() {
    let (first, second) = (MemoryBroker::new(), MemoryBroker::new());
    let reduced = common::Reduced::new(&second, ruststream::transport::Capabilities::none());
    let running = app(first.clone(), |_| {})
        .with_broker(reduced, |_| {})
        .start()
        .await
        .unwrap();

    running.publisher().publish("to", &1).await.unwrap();
    running
        .publisher_on("reduced")
        .unwrap()
        .publish("to", &2)
        .await
        .unwrap();
    running.publisher_on("memory").unwrap().publish("to", &3).await.unwrap();
    assert!(running.publisher_on("other").is_none());

    assert_eq!((first.held("to"), second.held("to")), (2, 1));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_publisher_of_a_stopped_app_says_that_it_is_closed() {
    let running = start(MemoryBroker::new(), |_| {}).await;
    let publisher = running.publisher();
    running.shutdown().await.unwrap();

    let error = publisher.publish("orders", &1).await.unwrap_err();

    assert_eq!(error.first().kind(), ErrorKind::Closed);
}

#[derive(Debug, Deserialize)]
struct Cart {
    id: u64,
    regions: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Message)]
#[message(destination = "lines.{region}.{number}")]
struct Line {
    region: String,
    number: u64,
}

#[subscriber("carts", reply = "receipts")]
async fn split_cart(cart: Cart) -> Replies {
    let lines = cart.regions.into_iter().map(|region| Line {
        region,
        number: cart.id,
    });
    let lines = lines.map(|line| Reply::addressed(line).header("kind", "line").delay(SECOND));
    Replies::from([Reply::new(cart.id).key("customer-7")]).and(lines)
}

#[tokio::test(start_paused = true)]
async fn a_handler_answers_with_several_messages_each_where_it_says() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(split_cart);
    })
    .await;
    let asked = HeaderMap::from_iter([(header::REPLY_TO, "asked"), (header::MESSAGE_ID, "one")]);
    publish_with(&broker, "carts", br#"{"id":7,"regions":["eu","us"]}"#, &asked).await;
    common::publish(&broker, "carts", [r#"{"id":8,"regions":[]}"#]).await;
    within(broker.idle("carts")).await;

    let receipt = broker.published("asked").remove(0);
    assert_eq!(
        (&receipt.payload[..], receipt.key.as_deref()),
        (&b"7"[..], Some(&b"customer-7"[..]))
    );
    for name in ["lines.eu.7", "lines.us.7"] {
        let line = broker.published(name).remove(0);
        assert_eq!(line.headers.get_str("kind"), Some("line"));
        assert_eq!(line.headers.get_str(header::CONTENT_TYPE), Some("application/json"));
        assert_eq!(line.headers.get_str(header::CORRELATION_ID), Some("one"));
    }
    assert_eq!(&broker.published("receipts")[0].payload[..], b"8");
    assert_eq!(common::health(&running).acked, 2);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_is_not_acked_while_one_of_its_replies_is_not_confirmed() {
    #[subscriber("carts", reply = "receipts")]
    async fn astray(id: u64) -> Replies {
        // The last of them is a pattern, which no message can go to.
        [Reply::new(id), Reply::new(id).to("copies"), Reply::new(id).to("lost.*")]
            .into_iter()
            .collect()
    }

    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(astray).retry(Retry::fixed(SECOND).attempts(2));
        scope.include(handler("good", |_| std::future::ready(())));
    })
    .await;
    publish_ids(&broker, "carts", [7]).await;
    within(broker.settled("carts", 1)).await;

    let dead = broker.dead_letters("carts").remove(0);
    assert!(
        dead.letter.error.contains("the reply was not confirmed"),
        "{}",
        dead.letter.error
    );
    assert!(dead.letter.error.contains("lost.*"), "{}", dead.letter.error);
    assert_eq!(dead.letter.attempts, 2);
    assert_eq!(
        (broker.published("receipts").len(), broker.published("copies").len()),
        (2, 2)
    );
    running.shutdown().await.unwrap();
}

#[subscriber("regions")]
async fn route(region: String, lines: Out<Line>) -> Result<(), PublishError> {
    let line = Line { region, number: 1 };
    lines.send(&line).await?;
    lines
        .publish_all([lines.send(&line).key("a"), lines.publish("copies", &line).key("b")])
        .await
}

#[tokio::test(start_paused = true)]
async fn a_message_goes_where_its_type_says_and_a_value_cannot_lead_it_elsewhere() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(route).retry(Retry::never());
    })
    .await;
    common::publish(&broker, "regions", [r#""eu""#, r#""eu.#""#, r#""""#]).await;
    within(broker.idle("regions")).await;

    let sent = broker.published("lines.eu.1");
    let keys: Vec<_> = sent.iter().map(|line| line.key.as_deref()).collect();
    assert_eq!(keys, [None, Some(&b"a"[..])]);
    assert_eq!(broker.published("copies")[0].key.as_deref(), Some(&b"b"[..]));
    let dead: Vec<_> = broker
        .dead_letters("regions")
        .into_iter()
        .map(|dead| dead.letter.error)
        .collect();
    assert!(dead[0].contains("`{region}`") && dead[0].contains("'.'"), "{}", dead[0]);
    assert!(dead[1].contains("`{region}` is empty"), "{}", dead[1]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_at_once_are_all_sent_or_none_where_one_cannot_be() {
    let (here, there) = (MemoryBroker::new(), MemoryBroker::new());
    let (running, other) = (start(here.clone(), |_| {}).await, start(there, |_| {}).await);
    let (publisher, elsewhere) = (running.publisher(), other.publisher());

    let error = publisher
        .publish_all([publisher.publish("orders", &1), elsewhere.publish("orders", &2)])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("another broker"), "{error}");
    let unfilled = ruststream::publish::fill("orders.{region}", &[]);
    let error = publisher
        .publish_all([publisher.publish("orders", &1), publisher.publish(unfilled, &2)])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("`{region}` has no value"), "{error}");
    assert_eq!(error.first().kind(), ErrorKind::Invalid);
    assert_eq!(here.published("orders").len(), 0);

    running.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
}

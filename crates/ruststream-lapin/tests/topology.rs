//! Exchanges, bindings, queue kinds, properties and dead letters, on a real server.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::time::Duration;

use ruststream::conformance::unique_name;
use ruststream::message::{HeaderMap, OptionSet, Outgoing};
use ruststream::transport::{
    Broker, Connection, DeadLetter, DeadReason, Delivery, ErrorKind, Fetch, Publish, Settle, Source, Verdict,
};
use ruststream_lapin::types::AMQPValue;
use ruststream_lapin::{
    Binding, Exchange, LapinBroker, LapinConnection, LapinPublish, MessageFields, Queue, QueueDelivery,
};
use servers::Kind;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

fn broker() -> LapinBroker {
    LapinBroker::new(servers::shared(Kind::Rabbit).unwrap())
}

/// Publishes to an exchange; the kind of the error if there is one.
async fn send(connection: &LapinConnection, options: LapinPublish, key: &str, body: &[u8]) -> Option<ErrorKind> {
    let mut set = OptionSet::new();
    set.insert(options);
    let messages = [Outgoing::new(key, body).with_options(&set)];
    let answer = connection.publisher().publish(&messages).await;
    answer.err().map(|error| error.first().kind())
}

/// What a queue holds, acked as it is taken.
async fn take(connection: &LapinConnection, queue: &Queue, count: usize) -> Vec<QueueDelivery> {
    let (mut fetch, settle) = queue.open(connection).await.unwrap();
    let mut taken = Vec::new();
    while taken.len() < count {
        timeout(PATIENCE, fetch.fetch(count, &mut taken))
            .await
            .expect("nothing came")
            .unwrap();
    }
    let more = timeout(Duration::from_millis(200), fetch.fetch(1, &mut taken)).await;
    assert!(more.is_err(), "{count} were to come, and {} did", taken.len());
    // The channel lives as long as a half of the subscription; the deliveries are settled by its end.
    drop(settle);
    taken
}

fn bodies(deliveries: &[QueueDelivery]) -> Vec<&str> {
    let texts = deliveries
        .iter()
        .map(|delivery| std::str::from_utf8(delivery.payload()).unwrap());
    texts.collect()
}

#[tokio::test]
async fn exchanges_lead_messages_as_their_type_says() {
    let name = unique_name();
    let named = |what: &str| format!("{name}.{what}");
    let queue = |what: &str| Queue::new(named(what));
    let connection = broker()
        .declare(Exchange::topic(named("topic")).alternate(&named("unrouted")))
        .declare(Exchange::fanout(named("unrouted")))
        .declare(Exchange::direct(named("direct")))
        .declare(Exchange::headers(named("headers")))
        .declare(Exchange::consistent_hash(named("hash")))
        .declare(queue("orders").bound_to(named("topic"), "order.*"))
        .declare(queue("all").bound_to(named("topic"), "#.created"))
        .declare(queue("rest").bound_to(named("unrouted"), ""))
        .declare(queue("exact").bound_to(named("direct"), "a.b"))
        .declare(
            queue("typed").bound_by(
                Binding::new(named("headers"), "")
                    .header("count", 3i64)
                    .header("kind", true),
            ),
        )
        .declare(queue("hashed-1").bound_to(named("hash"), "1"))
        .declare(queue("hashed-2").bound_to(named("hash"), "1"))
        .declare(Binding::between(named("direct"), named("topic")).routing_key("order.moved"))
        .connect()
        .await
        .unwrap();
    let to = |exchange: &str| LapinPublish::to_exchange(named(exchange));

    assert_eq!(send(&connection, to("topic"), "order.created", b"1").await, None);
    assert_eq!(send(&connection, to("topic"), "order.x.created", b"2").await, None);
    assert_eq!(send(&connection, to("topic"), "nothing.such", b"3").await, None);
    assert_eq!(send(&connection, to("direct"), "a.b", b"4").await, None);
    assert_eq!(
        send(&connection, to("direct"), "a.c", b"5").await,
        Some(ErrorKind::Unroutable)
    );
    assert_eq!(
        send(&connection, to("direct").mandatory(false), "a.c", b"5").await,
        None
    );
    assert_eq!(send(&connection, to("direct"), "order.moved", b"6").await, None);
    let typed = to("headers").header("count", 3i64).header("kind", true);
    assert_eq!(send(&connection, typed, "", b"7").await, None);
    let other = to("headers").header("count", 4i64).header("kind", true);
    assert_eq!(send(&connection, other, "", b"8").await, Some(ErrorKind::Unroutable));
    let missing = LapinPublish::to_exchange(named("missing"));
    assert_eq!(send(&connection, missing, "a", b"9").await, Some(ErrorKind::Unroutable));

    let orders = take(&connection, &queue("orders").bound_to(named("topic"), "order.*"), 2).await;
    assert_eq!(bodies(&orders), ["1", "6"]);
    let fields = orders[0].fields().downcast_ref::<MessageFields>().unwrap();
    assert_eq!(
        (fields.exchange(), fields.routing_key()),
        (named("topic").as_str(), "order.created")
    );
    assert_eq!(bodies(&take(&connection, &queue("all"), 2).await), ["1", "2"]);
    assert_eq!(bodies(&take(&connection, &queue("rest"), 1).await), ["3"]);
    assert_eq!(bodies(&take(&connection, &queue("exact"), 1).await), ["4"]);
    assert_eq!(bodies(&take(&connection, &queue("typed"), 1).await), ["7"]);
    connection.close().await;
}

#[tokio::test]
async fn properties_and_typed_headers_survive_a_retry_and_a_delay() {
    let name = unique_name();
    let queue = Queue::new(&name);
    let connection = broker().declare(queue.clone()).connect().await.unwrap();
    let options = LapinPublish::new()
        .message_type("order")
        .app_id("tests")
        .user_id("guest")
        .priority(3)
        .header("count", 7i32)
        .header("price", 0.5f64);
    let mut set = OptionSet::new();
    set.insert(options);
    let headers: HeaderMap = [("zeta", "1"), ("alpha", "2")].into_iter().collect();
    let message = Outgoing::new(&name, b"x").with_headers(&headers).with_options(&set);
    connection.publisher().publish(&[message]).await.unwrap();

    let (mut fetch, mut settle) = queue.open(&connection).await.unwrap();
    for (attempt, after) in [(1, Duration::ZERO), (2, Duration::from_millis(80)), (3, Duration::ZERO)] {
        let mut taken = Vec::new();
        timeout(PATIENCE, fetch.fetch(1, &mut taken))
            .await
            .expect("it did not come again")
            .unwrap();
        let delivery = taken.pop().unwrap();
        assert_eq!(delivery.attempt(), attempt);
        assert!(!delivery.is_unfinished());
        let fields = delivery.fields().downcast_ref::<MessageFields>().unwrap();
        let properties = fields.properties();
        assert_eq!(properties.kind().as_ref().unwrap().as_str(), "order");
        assert_eq!(properties.app_id().as_ref().unwrap().as_str(), "tests");
        assert_eq!(*properties.priority(), Some(3));
        let table = properties.headers().as_ref().unwrap();
        assert_eq!(table.inner().get("count"), Some(&AMQPValue::LongInt(7)));
        assert_eq!(table.inner().get("price"), Some(&AMQPValue::Double(0.5)));
        assert_eq!((fields.exchange(), fields.routing_key()), ("", name.as_str()));
        assert!(fields.deaths().is_empty(), "the steps of a delay are no deaths");
        let names: Vec<_> = delivery.headers().iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["zeta", "alpha", "count", "price"]);
        let mut finished = vec![(delivery.into_receipt(), Verdict::Retry { after })];
        settle.settle(&mut finished).await.unwrap();
    }
    fetch.close().await.unwrap();
    settle.close().await.unwrap();
    connection.close().await;
}

#[tokio::test]
async fn what_a_queue_drops_itself_says_so() {
    let name = unique_name();
    let expired = Queue::new(format!("{name}.expired"));
    let short = Queue::new(&name)
        .message_ttl(Duration::from_millis(50))
        .dead_letter_exchange("", expired.name());
    let connection = broker()
        .declare(expired.clone())
        .declare(short)
        .connect()
        .await
        .unwrap();
    connection
        .publisher()
        .publish(&[Outgoing::new(&name, b"late")])
        .await
        .unwrap();
    let dropped = take(&connection, &expired, 1).await;
    let fields = dropped[0].fields().downcast_ref::<MessageFields>().unwrap();
    let deaths = fields.deaths();
    assert_eq!(deaths.len(), 1);
    assert_eq!(
        (deaths[0].queue.as_str(), deaths[0].reason.as_str(), deaths[0].count),
        (name.as_str(), "expired", 1)
    );
    assert!(dropped[0].headers().is_empty(), "{:?}", dropped[0].headers());
    connection.close().await;
}

#[tokio::test]
async fn queues_of_every_kind_are_read() {
    let name = unique_name();
    let queue = |kind: &str| Queue::new(format!("{name}.{kind}"));
    let connection = broker().connect().await.unwrap();
    for queue in [
        queue("priority").max_priority(5),
        queue("length").max_length(3).reject_publish(),
        queue("lazy").lazy(),
        queue("expires").expires(Duration::from_mins(1)),
        queue("single").single_active_consumer().consumer_priority(7),
        queue("exclusive").exclusive(),
        queue("temporary").auto_delete(),
        queue("quorum").quorum().delivery_limit(3),
        queue("quorum-length").quorum().max_length(3),
    ] {
        let (mut fetch, mut settle) = queue.open(&connection).await.unwrap();
        connection
            .publisher()
            .publish(&[Outgoing::new(queue.name(), b"x")])
            .await
            .unwrap();
        let mut taken = Vec::new();
        timeout(PATIENCE, fetch.fetch(1, &mut taken))
            .await
            .unwrap_or_else(|_| panic!("nothing came from {}", queue.name()))
            .unwrap();
        let mut finished = taken
            .drain(..)
            .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
            .collect();
        settle.settle(&mut finished).await.unwrap();
        fetch.close().await.unwrap();
        settle.close().await.unwrap();
    }
    let full = queue("length");
    let bodies: Vec<_> = (0..5u8).map(|id| [id]).collect();
    let five: Vec<_> = bodies.iter().map(|body| Outgoing::new(full.name(), body)).collect();
    let error = connection.publisher().publish(&five).await.unwrap_err();
    assert_eq!(error.first().kind(), ErrorKind::Refused, "{error}");
    let refused: Vec<_> = (0..5).filter(|place| error.for_message(*place).is_some()).collect();
    assert_eq!(refused, [3, 4]);

    let anonymous = Queue::server_named("anonymous").bound_to("amq.topic", format!("{name}.*"));
    let (mut fetch, _settle) = anonymous.open(&connection).await.unwrap();
    let to = LapinPublish::to_exchange("amq.topic");
    assert_eq!(send(&connection, to, &format!("{name}.x"), b"1").await, None);
    let mut taken = Vec::new();
    timeout(PATIENCE, fetch.fetch(1, &mut taken))
        .await
        .expect("nothing came")
        .unwrap();
    assert!(Queue::server_named("anonymous").check().is_err(), "nothing leads to it");
    assert!(Queue::new("classic").delivery_limit(3).check().is_err());
    connection.close().await;
}

#[tokio::test]
async fn dead_letters_are_listed_replayed_and_purged() {
    let name = unique_name();
    let queue = Queue::new(&name);
    let connection = broker().declare(queue.clone()).connect().await.unwrap();
    let (mut fetch, mut settle) = queue.open(&connection).await.unwrap();
    let headers: HeaderMap = [("zeta", "1"), ("alpha", "2")].into_iter().collect();
    let messages: Vec<_> = [b"1", b"2", b"3"]
        .into_iter()
        .map(|body| Outgoing::new(&name, body).with_headers(&headers))
        .collect();
    connection.publisher().publish(&messages).await.unwrap();
    let mut taken = Vec::new();
    while taken.len() < 3 {
        timeout(PATIENCE, fetch.fetch(3, &mut taken))
            .await
            .expect("nothing came")
            .unwrap();
    }
    let letter = Verdict::DeadLetter(Box::new(DeadLetter {
        reason: DeadReason::Rejected,
        error: "no such customer".to_owned(),
        attempts: 1,
        source: name.clone(),
        at: std::time::SystemTime::now(),
    }));
    let mut finished = taken
        .drain(..)
        .map(|delivery| (delivery.into_receipt(), letter.clone()))
        .collect();
    settle.settle(&mut finished).await.unwrap();
    fetch.close().await.unwrap();
    settle.close().await.unwrap();

    let dead = connection.dead_letters(format!("{name}.dead"));
    let listed = dead.list(2).await.unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].payload, b"1");
    assert_eq!(listed[0].headers.get_str("dead-letter-error"), Some("no such customer"));
    assert_eq!(dead.replay(&name).await.unwrap(), 3);
    assert!(dead.list(2).await.unwrap().is_empty());
    let again = take(&connection, &queue, 3).await;
    assert_eq!(bodies(&again), ["1", "2", "3"]);
    assert!(
        again
            .iter()
            .all(|delivery| delivery.attempt() == 1 && *delivery.headers() == headers)
    );
    drop(again);
    assert_eq!(dead.purge().await.unwrap(), 0);
    assert!(
        connection
            .dead_letters("no-such-queue")
            .list(1)
            .await
            .unwrap_err()
            .is_unroutable()
    );
    connection.close().await;
}

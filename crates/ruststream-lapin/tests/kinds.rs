//! What each setting of a queue makes of it, on a real server.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::collections::BTreeMap;
use std::time::Duration;

use ruststream::conformance::unique_name;
use ruststream::message::{OptionSet, Outgoing};
use ruststream::transport::{Broker, Connection, Delivery, ErrorKind, Fetch, Publish, Settle, Source, Verdict};
use ruststream_lapin::{
    Declaration, Exchange, LapinBroker, LapinConnection, LapinPublish, MessageFields, Queue, QueueDelivery, QueueFetch,
    QueueSettle,
};
use servers::Kind;
use tokio::time::{Instant, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(10);
/// How long a test watches for what is not to come.
const QUIET: Duration = Duration::from_millis(300);

fn broker() -> LapinBroker {
    LapinBroker::new(servers::shared(Kind::Rabbit).unwrap())
}

async fn connected(queue: &Queue) -> LapinConnection {
    broker().declare(queue.clone()).connect().await.unwrap()
}

async fn publish(connection: &LapinConnection, queue: &Queue, bodies: &[u8]) {
    let bodies: Vec<_> = bodies.iter().map(|body| [*body]).collect();
    let messages: Vec<_> = bodies.iter().map(|body| Outgoing::new(queue.name(), body)).collect();
    connection.publisher().publish(&messages).await.unwrap();
}

async fn take(fetch: &mut QueueFetch, count: usize) -> Vec<QueueDelivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let room = count - taken.len();
        timeout(PATIENCE, fetch.fetch(room, &mut taken))
            .await
            .expect("nothing came")
            .unwrap();
    }
    taken
}

async fn nothing_comes(fetch: &mut QueueFetch) {
    let mut taken = Vec::new();
    assert!(timeout(QUIET, fetch.fetch(1, &mut taken)).await.is_err(), "{taken:?}");
}

async fn ack(settle: &mut QueueSettle, deliveries: Vec<QueueDelivery>) {
    let finished = deliveries
        .into_iter()
        .map(|delivery| (delivery.into_receipt(), Verdict::Ack));
    settle.settle(&mut finished.collect()).await.unwrap();
}

fn bodies(deliveries: &[QueueDelivery]) -> Vec<u8> {
    deliveries.iter().map(|delivery| delivery.payload()[0]).collect()
}

#[tokio::test]
async fn urgent_messages_pass_others_in_a_queue_with_priorities() {
    let queue = Queue::new(unique_name()).max_priority(5);
    let connection = connected(&queue).await;
    for (body, priority) in [(1u8, 0u8), (2, 5), (3, 1), (4, 5)] {
        let mut set = OptionSet::new();
        set.insert(LapinPublish::new().priority(priority));
        let message = Outgoing::new(queue.name(), std::slice::from_ref(&body)).with_options(&set);
        connection.publisher().publish(&[message]).await.unwrap();
    }
    let (mut fetch, mut settle) = queue.open(&connection).await.unwrap();
    let mut order = Vec::new();
    for _ in 0..4 {
        let taken = take(&mut fetch, 1).await;
        order.extend(bodies(&taken));
        ack(&mut settle, taken).await;
    }
    assert_eq!(order, [2, 4, 3, 1]);
    connection.close().await;
}

#[tokio::test]
async fn messages_past_their_time_or_beyond_the_length_are_dropped() {
    let brief = Queue::new(unique_name()).message_ttl(Duration::from_millis(50));
    let connection = connected(&brief).await;
    publish(&connection, &brief, b"1").await;
    sleep(Duration::from_millis(200)).await;
    let (mut fetch, _settle) = brief.open(&connection).await.unwrap();
    nothing_comes(&mut fetch).await;

    // One message may bring its own time.
    let queue = Queue::new(unique_name());
    let (mut fetch, settle) = queue.open(&connection).await.unwrap();
    fetch.close().await.unwrap();
    settle.close().await.unwrap();
    let mut set = OptionSet::new();
    set.insert(LapinPublish::new().expiration(Duration::from_millis(50)));
    let message = Outgoing::new(queue.name(), b"1").with_options(&set);
    connection.publisher().publish(&[message]).await.unwrap();
    publish(&connection, &queue, b"2").await;
    sleep(Duration::from_millis(200)).await;
    let (again, _settle) = queue.open(&connection).await.unwrap();
    fetch = again;
    assert_eq!(bodies(&take(&mut fetch, 1).await), b"2");

    for short in [
        Queue::new(unique_name()).max_length(2),
        Queue::new(unique_name()).max_length_bytes(2),
    ] {
        let connection = connected(&short).await;
        publish(&connection, &short, b"1234").await;
        let (mut fetch, settle) = short.open(&connection).await.unwrap();
        assert_eq!(bodies(&take(&mut fetch, 2).await), b"34");
        nothing_comes(&mut fetch).await;
        drop(settle);
        connection.close().await;
    }
    connection.close().await;
}

#[tokio::test]
async fn a_lazy_queue_is_one_to_the_server() {
    let queue = Queue::new(unique_name()).lazy();
    let connection = connected(&queue).await;
    publish(&connection, &queue, b"1").await;
    // Without the setting it would be another queue.
    let other = Queue::new(queue.name()).open(&connection).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Incompatible);
    assert!(other.to_string().contains("`x-queue-mode`"), "{other}");
    let (mut fetch, _settle) = queue.open(&connection).await.unwrap();
    assert_eq!(bodies(&take(&mut fetch, 1).await), b"1");
    connection.close().await;
}

#[tokio::test]
async fn an_exclusive_queue_is_of_one_connection_and_ends_with_it() {
    let queue = Queue::new(unique_name()).exclusive();
    let (one, other) = (broker().connect().await.unwrap(), broker().connect().await.unwrap());
    let halves = queue.open(&one).await.unwrap();
    let refused = queue.open(&other).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    drop(halves);
    one.close().await;
    let gone = Queue::new(queue.name()).declaration(Declaration::Passive);
    assert!(gone.open(&other).await.unwrap_err().is_unroutable());
    other.close().await;
}

#[tokio::test]
async fn an_auto_delete_queue_ends_with_its_last_reader() {
    let queue = Queue::new(unique_name()).auto_delete();
    let connection = broker().connect().await.unwrap();
    let (first, second) = (
        queue.open(&connection).await.unwrap(),
        queue.open(&connection).await.unwrap(),
    );
    first.0.close().await.unwrap();
    first.1.close().await.unwrap();
    publish(&connection, &queue, b"1").await;
    second.0.close().await.unwrap();
    second.1.close().await.unwrap();
    let gone = connection
        .publisher()
        .publish(&[Outgoing::new(queue.name(), b"2")])
        .await;
    assert!(gone.unwrap_err().first().is_unroutable());
    connection.close().await;
}

#[tokio::test]
async fn two_queues_with_names_of_the_server_get_a_copy_each() {
    let exchange = unique_name();
    let connection = broker().declare(Exchange::fanout(&exchange)).connect().await.unwrap();
    let queue = Queue::server_named("mine").bound_to(&exchange, "");
    let (mut one, _one) = queue.open(&connection).await.unwrap();
    let (mut other, _other) = queue.open(&connection).await.unwrap();
    let mut set = OptionSet::new();
    set.insert(LapinPublish::to_exchange(&exchange));
    let message = Outgoing::new("", b"1").with_options(&set);
    connection.publisher().publish(&[message]).await.unwrap();
    assert_eq!(bodies(&take(&mut one, 1).await), b"1");
    assert_eq!(bodies(&take(&mut other, 1).await), b"1");
    connection.close().await;
}

#[tokio::test]
async fn a_single_active_consumer_has_all_until_it_ends() {
    for queue in [Queue::new(unique_name()), Queue::new(unique_name()).quorum()] {
        let queue = queue.single_active_consumer();
        let connection = connected(&queue).await;
        let mut active = queue.open(&connection).await.unwrap();
        let mut spare = queue.open(&connection).await.unwrap();
        publish(&connection, &queue, b"12").await;
        let taken = take(&mut active.0, 2).await;
        nothing_comes(&mut spare.0).await;
        ack(&mut active.1, taken).await;
        active.0.close().await.unwrap();
        active.1.close().await.unwrap();
        publish(&connection, &queue, b"3").await;
        assert_eq!(bodies(&take(&mut spare.0, 1).await), b"3");
        connection.close().await;
    }
}

#[tokio::test]
async fn consumers_of_a_higher_priority_are_served_first() {
    let queue = Queue::new(unique_name()).prefetch(10);
    let connection = connected(&queue).await;
    let (mut low, _low) = queue.open(&connection).await.unwrap();
    let (mut high, _high) = queue.clone().consumer_priority(7).open(&connection).await.unwrap();
    publish(&connection, &queue, b"1234567890").await;
    assert_eq!(take(&mut high, 10).await.len(), 10);
    nothing_comes(&mut low).await;
    // It takes no more, so the other is served.
    publish(&connection, &queue, b"x").await;
    assert_eq!(bodies(&take(&mut low, 1).await), b"x");
    connection.close().await;
}

#[tokio::test]
async fn a_quorum_queue_gives_up_itself_what_was_delivered_beyond_its_limit() {
    let queue = Queue::new(unique_name()).quorum().delivery_limit(2);
    let connection = connected(&queue).await;
    publish(&connection, &queue, b"1").await;
    for attempt in 1..=3 {
        let (mut fetch, settle) = queue.open(&connection).await.unwrap();
        let taken = take(&mut fetch, 1).await;
        assert_eq!(taken[0].attempt(), attempt);
        // Dropped without a verdict, as by a crash.
        drop((fetch, settle, taken));
    }
    let dead = Queue::new(format!("{}.dead", queue.name())).declaration(Declaration::Passive);
    let began = Instant::now();
    let (mut fetch, _settle) = dead.open(&connection).await.unwrap();
    let letters = take(&mut fetch, 1).await;
    let fields = letters[0].fields().downcast_ref::<MessageFields>().unwrap();
    let reasons: Vec<_> = fields.deaths().into_iter().map(|death| death.reason).collect();
    assert_eq!(reasons, ["delivery_limit"], "after {:?}", began.elapsed());
    connection.close().await;
}

#[tokio::test]
async fn a_queue_that_nobody_uses_ends_when_it_is_to() {
    let queue = Queue::new(unique_name()).expires(Duration::from_millis(200));
    let connection = connected(&queue).await;
    let ended = async {
        let gone = Queue::new(queue.name()).declaration(Declaration::Never);
        while gone.open(&connection).await.is_ok() {
            sleep(Duration::from_millis(300)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("it is still there");
    connection.close().await;
}

#[tokio::test]
async fn an_exchange_that_is_there_otherwise_is_one_error_that_names_what_differs() {
    let name = unique_name();
    let theirs = broker().declare(Exchange::topic(&name)).connect().await.unwrap();
    let alternate = Exchange::topic(&name).alternate("other");
    for (exchange, named) in [
        (Exchange::fanout(&name), "`type`"),
        (Exchange::topic(&name).internal(), "`internal`"),
        (alternate, "`alternate-exchange`"),
    ] {
        let refused = broker().declare(exchange).connect().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Incompatible, "{refused}");
        assert!(
            refused.to_string().contains(named) && refused.to_string().contains(&name),
            "{refused}"
        );
    }
    for declaration in [Declaration::Passive, Declaration::Never] {
        let exchange = Exchange::fanout(&name).declaration(declaration);
        broker().declare(exchange).connect().await.unwrap().close().await;
    }
    let missing = Exchange::fanout(unique_name()).declaration(Declaration::Passive);
    assert!(broker().declare(missing).connect().await.unwrap_err().is_unroutable());
    theirs.close().await;
}

#[tokio::test]
async fn a_consistent_hash_leads_a_key_always_to_the_same_queue() {
    let name = unique_name();
    let (hash, one, other) = (format!("{name}.hash"), format!("{name}.1"), format!("{name}.2"));
    let queues = [&one, &other].map(|queue| Queue::new(queue).bound_to(&hash, "10"));
    let [first, second] = queues.clone();
    let connection = broker()
        .declare(Exchange::consistent_hash(&hash))
        .declare(first)
        .declare(second)
        .connect()
        .await
        .unwrap();
    let mut set = OptionSet::new();
    set.insert(LapinPublish::to_exchange(&hash));
    let keys: Vec<_> = (0..200).map(|key| format!("key-{}", key % 100)).collect();
    let messages: Vec<_> = keys
        .iter()
        .map(|key| Outgoing::new(key, b"x").with_options(&set))
        .collect();
    connection.publisher().publish(&messages).await.unwrap();
    let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, queue) in queues.iter().enumerate() {
        let (mut fetch, _settle) = queue.open(&connection).await.unwrap();
        let mut taken = Vec::new();
        while timeout(QUIET, fetch.fetch(200, &mut taken)).await.is_ok() {}
        assert!(taken.len() > 40, "{} of 200 in one", taken.len());
        for delivery in &taken {
            let fields = delivery.fields().downcast_ref::<MessageFields>().unwrap();
            seen.entry(fields.routing_key().to_owned()).or_default().push(number);
        }
    }
    assert_eq!(seen.len(), 100);
    assert!(
        seen.values().all(|places| places.len() == 2 && places[0] == places[1]),
        "{seen:?}"
    );
    connection.close().await;
}

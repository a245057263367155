//! What is published, on a real server: together, with all properties, with headers of all types.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ruststream::conformance::unique_name;
use ruststream::message::{HeaderMap, OptionSet, Outgoing, header};
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection, Delivery, ErrorKind, Fetch, Publish, Settle, Source, Verdict};
use ruststream_lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable};
use ruststream_lapin::{
    Declaration, LapinBroker, LapinConnection, LapinPublish, LapinTransaction, MessageFields, Queue, QueueDelivery,
    QueueFetch, QueueSettle,
};
use servers::{Instance, Kind, Settings};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

fn broker() -> LapinBroker {
    LapinBroker::new(servers::shared(Kind::Rabbit).unwrap())
}

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
    drop(settle);
    taken
}

fn bodies(deliveries: &[QueueDelivery]) -> Vec<&[u8]> {
    deliveries.iter().map(Delivery::payload).collect()
}

fn options(options: LapinPublish) -> OptionSet {
    let mut set = OptionSet::new();
    set.insert(options);
    set
}

#[tokio::test]
async fn a_transaction_stores_all_its_messages_or_none() {
    let (one, other) = (Queue::new(unique_name()), Queue::new(unique_name()));
    let connection = broker()
        .declare(one.clone())
        .declare(other.clone())
        .connect()
        .await
        .unwrap();
    let publisher = connection.publisher();
    let together = options(LapinPublish::new().transaction());
    let all = [
        Outgoing::new(one.name(), b"1").with_options(&together),
        Outgoing::new(other.name(), b"2").with_options(&together),
        Outgoing::new(one.name(), b"3").with_options(&together),
    ];
    publisher.publish(&all).await.unwrap();

    // An exchange that is missing ends the transaction: nothing of it is stored, and what is sent beside it is.
    let missing = options(LapinPublish::to_exchange("no-such-exchange").transaction());
    let broken = [
        Outgoing::new(one.name(), b"4").with_options(&together),
        Outgoing::new(one.name(), b"5"),
        Outgoing::new("key", b"6").with_options(&missing),
    ];
    let error = publisher.publish(&broken).await.unwrap_err();
    let failed: Vec<_> = (0..3).filter(|place| error.for_message(*place).is_some()).collect();
    assert_eq!(failed, [0, 2], "{error}");
    assert_eq!(error.first().kind(), ErrorKind::Unroutable);

    // As does one that cannot be sent at all.
    let name = "x".repeat(300);
    let unsendable = [
        Outgoing::new(one.name(), b"7").with_options(&together),
        Outgoing::new(&name, b"8").with_options(&together),
    ];
    let error = publisher.publish(&unsendable).await.unwrap_err();
    assert!(
        error.for_message(0).is_some() && error.for_message(1).is_some(),
        "{error}"
    );

    // One without a queue is an error of its own.
    let unroutable = [
        Outgoing::new(one.name(), b"9").with_options(&together),
        Outgoing::new("no-such-queue", b"10").with_options(&together),
    ];
    let error = publisher.publish(&unroutable).await.unwrap_err();
    assert!(error.for_message(0).is_none(), "{error}");
    assert_eq!(error.for_message(1).unwrap().kind(), ErrorKind::Unroutable);

    assert_eq!(bodies(&take(&connection, &one, 4).await), [b"1", b"3", b"5", b"9"]);
    assert_eq!(bodies(&take(&connection, &other, 1).await), [b"2"]);
    connection.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_on_a_server_that_is_killed_is_answered_and_the_next_works() {
    let mut server = Instance::start(Kind::Rabbit, Settings { durable: true }).unwrap();
    let queue = Queue::new("orders");
    let connection = LapinBroker::new(server.url())
        .publish_timeout(Duration::from_secs(4))
        .declare(queue.clone())
        .connect()
        .await
        .unwrap();
    let publisher = connection.publisher();
    let together = options(LapinPublish::new().transaction());
    let all = [b"1", b"2"].map(|body| Outgoing::new("orders", body).with_options(&together));
    publisher.publish(&all).await.unwrap();
    server.pause();
    let (lost, ()) = tokio::join!(timeout(Duration::from_secs(6), publisher.publish(&all)), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.kill();
    });
    let error = lost.expect("it was not answered").unwrap_err();
    assert!(error.first().is_transient(), "{error}");
    server.start_again().unwrap();
    let again = async { while publisher.publish(&all).await.is_err() {} };
    timeout(PATIENCE, again).await.expect("the next one does not work");
    let taken = take(&connection, &queue, 4).await;
    let mut all = bodies(&taken);
    all.sort();
    assert_eq!(
        all,
        [b"1", b"1", b"2", b"2"],
        "that of the killed server was taken back whole"
    );
    connection.close().await;
}

/// A value of every type that a header can have.
fn values() -> Vec<(&'static str, AMQPValue)> {
    let nested: FieldArray = vec![AMQPValue::LongLongInt(1), AMQPValue::Boolean(false)].into();
    let mut table = FieldTable::default();
    table.insert("inner".into(), AMQPValue::LongString("x".into()));
    vec![
        ("boolean", AMQPValue::Boolean(true)),
        ("short-short", AMQPValue::ShortShortInt(-8)),
        ("unsigned-short-short", AMQPValue::ShortShortUInt(200)),
        ("short", AMQPValue::ShortInt(-300)),
        ("unsigned-short", AMQPValue::ShortUInt(60_000)),
        ("long", AMQPValue::LongInt(-70_000)),
        ("unsigned-long", AMQPValue::LongUInt(4_000_000_000)),
        ("long-long", AMQPValue::LongLongInt(i64::MIN)),
        ("float", AMQPValue::Float(0.5)),
        ("double", AMQPValue::Double(-0.25)),
        (
            "decimal",
            AMQPValue::DecimalValue(DecimalValue {
                scale: 2,
                value: 12_345,
            }),
        ),
        ("text", AMQPValue::LongString("word".into())),
        ("bytes", AMQPValue::ByteArray(vec![0, 255, 7].into())),
        ("timestamp", AMQPValue::Timestamp(1_700_000_000)),
        ("void", AMQPValue::Void),
        ("array", AMQPValue::FieldArray(nested)),
        ("table", AMQPValue::FieldTable(table)),
    ]
}

#[tokio::test]
async fn all_properties_and_headers_of_all_types_arrive_as_they_were_sent() {
    let queue = Queue::new(unique_name()).max_priority(9);
    let connection = broker().declare(queue.clone()).connect().await.unwrap();
    let made = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let mut asked = LapinPublish::new()
        .priority(7)
        .expiration(Duration::from_mins(10))
        .message_type("order.created")
        .app_id("shop")
        .user_id("guest")
        .timestamp(made);
    for (name, value) in values() {
        asked = asked.header(name, value);
    }
    let set = options(asked);
    let own = [
        ("content-type", "application/x-shop"),
        ("content-encoding", "none"),
        ("correlation-id", "c-1"),
        ("reply-to", "answers"),
        ("message-id", "m-1"),
    ];
    let headers: HeaderMap = own.into_iter().collect();
    let message = Outgoing::new(queue.name(), b"{}")
        .with_headers(&headers)
        .with_options(&set);
    connection.publisher().publish(&[message]).await.unwrap();

    let taken = take(&connection, &queue, 1).await;
    let fields = taken[0].fields().downcast_ref::<MessageFields>().unwrap();
    let properties = fields.properties();
    let short = |value: &Option<ruststream_lapin::types::ShortString>| value.as_ref().unwrap().as_str().to_owned();
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(*properties.priority(), Some(7));
    assert_eq!(short(properties.expiration()), "600000");
    assert_eq!(short(properties.kind()), "order.created");
    assert_eq!(short(properties.app_id()), "shop");
    assert_eq!(short(properties.user_id()), "guest");
    assert_eq!(*properties.timestamp(), Some(1_600_000_000));
    assert_eq!(taken[0].published_at(), Some(made));
    assert_eq!(short(properties.content_type()), "application/x-shop");
    assert_eq!(short(properties.content_encoding()), "none");
    assert_eq!(short(properties.correlation_id()), "c-1");
    assert_eq!(short(properties.reply_to()), "answers");
    assert_eq!(short(properties.message_id()), "m-1");
    for (name, value) in own {
        assert_eq!(taken[0].headers().get_str(name), Some(value));
    }
    let table = properties.headers().as_ref().unwrap().inner();
    for (name, value) in values() {
        assert_eq!(table.get(name), Some(&value), "{name}");
    }
    connection.close().await;
}

#[tokio::test]
async fn a_message_is_persistent_unless_it_says_otherwise_and_has_its_time() {
    let queue = Queue::new(unique_name());
    let connection = broker().declare(queue.clone()).connect().await.unwrap();
    let transient = options(LapinPublish::new().transient());
    let both = [
        Outgoing::new(queue.name(), b"1"),
        Outgoing::new(queue.name(), b"2").with_options(&transient),
    ];
    connection.publisher().publish(&both).await.unwrap();
    let taken = take(&connection, &queue, 2).await;
    let mode = |delivery: &QueueDelivery| {
        let fields = delivery.fields().downcast_ref::<MessageFields>().unwrap();
        *fields.properties().delivery_mode()
    };
    assert_eq!((mode(&taken[0]), mode(&taken[1])), (Some(2), Some(1)));
    let age = SystemTime::now()
        .duration_since(taken[0].published_at().unwrap())
        .unwrap();
    assert!(age < Duration::from_mins(1), "{age:?}");
    connection.close().await;
}

/// A queue with these messages whose acks are in transactions, another queue, and a connection.
async fn transactional(quorum: bool, bodies: &[u8]) -> (LapinConnection, Queue, Queue) {
    let queue = Queue::new(unique_name()).transactional();
    let queue = if quorum { queue.quorum() } else { queue };
    let receipts = Queue::new(unique_name());
    let broker = broker().declare(queue.clone()).declare(receipts.clone());
    let connection = broker.connect().await.unwrap();
    let jobs: Vec<_> = bodies.chunks(1).map(|body| Outgoing::new(queue.name(), body)).collect();
    connection.publisher().publish(&jobs).await.unwrap();
    (connection, queue, receipts)
}

/// Takes so many, through lost channels.
async fn insist(fetch: &mut QueueFetch, count: usize) -> Vec<QueueDelivery> {
    let mut taken = Vec::new();
    let taking = async {
        while taken.len() < count {
            let room = count - taken.len();
            let _ = fetch.fetch(room, &mut taken).await;
        }
    };
    timeout(PATIENCE, taking).await.expect("they did not come");
    taken
}

fn transaction(delivery: &QueueDelivery) -> &LapinTransaction {
    let fields = delivery.fields().downcast_ref::<MessageFields>().unwrap();
    fields.transaction().unwrap()
}

async fn finish(
    settle: &mut QueueSettle,
    taken: Vec<QueueDelivery>,
    verdicts: impl IntoIterator<Item = Verdict>,
) -> usize {
    let receipts = taken.into_iter().map(Delivery::into_receipt);
    let mut finished = receipts.zip(verdicts).collect();
    settle.settle(&mut finished).await.unwrap().stale
}

#[tokio::test]
async fn what_a_handler_publishes_is_stored_with_its_ack_alone() {
    for quorum in [false, true] {
        let (connection, queue, receipts) = transactional(quorum, b"1234").await;
        let (mut fetch, mut settle) = queue.open(&connection).await.unwrap();
        let taken = insist(&mut fetch, 4).await;
        for delivery in &taken {
            let queued = Outgoing::new(receipts.name(), delivery.payload());
            transaction(delivery).publish(&queued).unwrap();
        }
        let lost = Outgoing::new("no-such-queue", b"lost");
        transaction(&taken[2]).publish(&lost).unwrap();
        let retry = Verdict::Retry { after: Duration::ZERO };
        let verdicts = [Verdict::Ack, retry, Verdict::Ack, Verdict::Release];
        assert_eq!(finish(&mut settle, taken, verdicts).await, 0);

        assert_eq!(
            bodies(&take(&connection, &receipts, 2).await),
            [b"1", b"3"],
            "quorum: {quorum}"
        );
        let again = insist(&mut fetch, 2).await;
        assert_eq!((bodies(&again), again[0].attempt()), (vec![&b"2"[..], b"4"], 2));
        let dead = connection.dead_letters(format!("{}.dead", queue.name()));
        let dead = dead.list(5).await.unwrap();
        assert_eq!((dead.len(), dead[0].payload.as_slice()), (1, &b"lost"[..]));
        connection.close().await;
    }
}

/// A transaction that the server refuses is undone whole: its acks too.
#[tokio::test]
async fn what_a_handler_publishes_in_vain_takes_its_ack_back() {
    for quorum in [false, true] {
        let (connection, queue, receipts) = transactional(quorum, b"12").await;
        let (mut fetch, mut settle) = queue.open(&connection).await.unwrap();
        let taken = insist(&mut fetch, 2).await;
        let missing = options(LapinPublish::to_exchange("no-such-exchange"));
        for delivery in &taken {
            let never = Outgoing::new(receipts.name(), b"never");
            transaction(delivery).publish(&never).unwrap();
            let broken = Outgoing::new("x", b"x").with_options(&missing);
            transaction(delivery).publish(&broken).unwrap();
        }
        finish(&mut settle, taken, [Verdict::Ack, Verdict::Ack]).await;
        let again = insist(&mut fetch, 2).await;
        let mut numbers = bodies(&again);
        numbers.sort_unstable();
        assert_eq!(numbers, [b"1", b"2"], "quorum: {quorum}");
        assert_eq!(finish(&mut settle, again, [Verdict::Ack, Verdict::Ack]).await, 0);
        fetch.close().await.unwrap();
        settle.close().await.unwrap();
        for queue in [queue.name(), receipts.name()] {
            let left = Queue::new(queue).declaration(Declaration::Passive);
            assert!(take(&connection, &left, 0).await.is_empty());
        }
        connection.close().await;
    }
}

/// One message that publishes to an exchange which is missing takes no other with it, neither of its group nor in hand.
#[tokio::test]
async fn who_publishes_to_a_missing_exchange_fails_alone() {
    for quorum in [false, true] {
        let (connection, queue, receipts) = transactional(quorum, b"12345").await;
        let (mut fetch, mut settle) = queue.open(&connection).await.unwrap();
        let mut taken = insist(&mut fetch, 5).await;
        let in_hand = taken.split_off(3);
        let missing = options(LapinPublish::to_exchange("no-such-exchange"));
        let broken = Outgoing::new("x", b"x").with_options(&missing);
        for delivery in &taken {
            let queued = Outgoing::new(receipts.name(), delivery.payload());
            transaction(delivery).publish(&queued).unwrap();
        }
        transaction(&taken[1]).publish(&broken).unwrap();
        let all_acked = std::iter::repeat(Verdict::Ack);
        assert_eq!(finish(&mut settle, taken, all_acked.clone()).await, 0);
        assert_eq!(
            bodies(&take(&connection, &receipts, 2).await),
            [b"1", b"3"],
            "quorum: {quorum}"
        );
        let again = insist(&mut fetch, 1).await;
        assert_eq!((again[0].payload(), again[0].attempt()), (&b"2"[..], 2));
        assert_eq!(finish(&mut settle, in_hand, all_acked.clone()).await, 0);

        // It is not tried for ever.
        finish(&mut settle, again, [Verdict::Return { attempts: 9 }]).await;
        let last = insist(&mut fetch, 1).await;
        assert_eq!(last[0].attempt(), 10);
        transaction(&last[0]).publish(&broken).unwrap();
        assert_eq!(finish(&mut settle, last, all_acked).await, 0);
        let dead = connection.dead_letters(format!("{}.dead", queue.name()));
        let dead = dead.list(5).await.unwrap();
        assert_eq!((dead.len(), dead[0].payload.as_slice()), (1, &b"2"[..]));
        let error = dead[0].headers.get_str(header::DEAD_ERROR).unwrap();
        assert!(error.contains("no-such-exchange"), "{error}");
        connection.close().await;
    }
}

/// What reached no queue is kept until it is stored where the dead letters are, though its ack is committed.
#[tokio::test]
async fn what_a_transaction_gave_back_is_kept_until_it_is_stored() {
    let (connection, queue, _) = transactional(false, b"1").await;
    let dead = format!("{}.dead", queue.name());
    let full = Queue::new(&dead)
        .max_length(1)
        .argument("x-overflow", AMQPValue::LongString("reject-publish".into()));
    let full = broker().declare(full).connect().await.unwrap();
    full.publisher()
        .publish(&[Outgoing::new(&dead, b"fills it")])
        .await
        .unwrap();
    let (mut fetch, mut settle) = queue.open(&connection).await.unwrap();
    let taken = insist(&mut fetch, 1).await;
    let lost = Outgoing::new("no-such-queue", b"lost");
    transaction(&taken[0]).publish(&lost).unwrap();
    let mut finished = taken
        .into_iter()
        .map(|one| (one.into_receipt(), Verdict::Ack))
        .collect();
    for _ in 0..2 {
        let error = settle.settle(&mut finished).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert_eq!(finished.len(), 1);
    }
    // The channel it came by does not matter any more.
    fetch.close().await.unwrap();

    let letters = full.dead_letters(dead);
    assert_eq!(letters.purge().await.unwrap(), 1);
    assert_eq!(settle.settle(&mut finished).await.unwrap().stale, 0);
    let letters = letters.list(5).await.unwrap();
    assert_eq!((letters.len(), letters[0].payload.as_slice()), (1, &b"lost"[..]));
    connection.close().await;
    full.close().await;
}

/// Neither a retry in its place nor a dead letter in a place of the author's own publishes what a failed attempt queued.
#[tokio::test]
async fn what_a_failed_attempt_queued_is_not_published() {
    #[derive(Clone)]
    struct Receipts(String);

    /// Fails in its first attempt, and always at 2.
    #[subscriber("orders")]
    async fn confirm(order: u64, context: Context<'_>, State(receipts): State<Receipts>) -> Result<(), String> {
        let fields: &MessageFields = context.fields().ok_or("it comes from no queue")?;
        let transaction = fields.transaction().ok_or("it has no transaction")?;
        let body = format!("{order} at {}", context.attempt());
        let receipt = Outgoing::new(&receipts.0, body.as_bytes());
        transaction.publish(&receipt).map_err(|error| error.to_string())?;
        if order == 2 || context.attempt() == 1 {
            return Err("it is to fail".to_owned());
        }
        Ok(())
    }

    let (connection, queue, receipts) = transactional(false, b"12").await;
    let graveyard = Queue::new(unique_name());
    let running = RustStream::new(AppInfo::new("receipts", "1.0.0"))
        .state(Receipts(receipts.name().to_owned()))
        .with_broker(broker().declare(graveyard.clone()), |broker| {
            let subscription = broker.include(confirm).source(queue.clone());
            subscription
                .ordered_by(OrderBy::message(|order: &u64| *order))
                .retry(Retry::fixed(Duration::from_millis(5)).attempts(2))
                .dead_letter(graveyard.name());
        })
        .start()
        .await
        .unwrap();
    assert_eq!(bodies(&take(&connection, &graveyard, 1).await), [b"2"]);
    assert_eq!(bodies(&take(&connection, &receipts, 1).await), [b"1 at 2"]);
    running.shutdown().await.unwrap();
    connection.close().await;
}

//! Streams, on a real server: where a reader begins, where it goes on, and what becomes of a message that fails.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ruststream::conformance::unique_name;
use ruststream::message::Outgoing;
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection, Delivery, ErrorKind, Fetch, Publish, Settle, Source, Verdict};
use ruststream_lapin::{
    LapinBroker, LapinConnection, MessageFields, Queue, QueueDelivery, QueueFetch, QueueSettle, StreamOffset,
};
use servers::{Kind, Proxy};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

fn broker() -> LapinBroker {
    LapinBroker::new(servers::shared(Kind::Rabbit).unwrap())
}

async fn publish(connection: &LapinConnection, stream: &str, numbers: impl IntoIterator<Item = u64>) {
    let bodies: Vec<_> = numbers.into_iter().map(|number| number.to_string()).collect();
    let messages: Vec<_> = bodies
        .iter()
        .map(|body| Outgoing::new(stream, body.as_bytes()))
        .collect();
    connection.publisher().publish(&messages).await.unwrap();
}

/// A stream with these messages.
async fn stream(connection: &LapinConnection, numbers: impl IntoIterator<Item = u64>) -> Queue {
    let queue = Queue::new(unique_name()).stream();
    let declared = queue.clone().untracked().open(connection).await.unwrap();
    publish(connection, queue.name(), numbers).await;
    drop(declared);
    queue
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

fn number(delivery: &QueueDelivery) -> u64 {
    std::str::from_utf8(delivery.payload()).unwrap().parse().unwrap()
}

fn numbers(deliveries: &[QueueDelivery]) -> Vec<u64> {
    deliveries.iter().map(number).collect()
}

async fn settle(settle: &mut QueueSettle, deliveries: impl IntoIterator<Item = (QueueDelivery, Verdict)>) {
    let mut finished = deliveries
        .into_iter()
        .map(|(delivery, verdict)| (delivery.into_receipt(), verdict))
        .collect();
    settle.settle(&mut finished).await.unwrap();
    assert!(finished.is_empty());
}

async fn ack(half: &mut QueueSettle, deliveries: impl IntoIterator<Item = QueueDelivery>) {
    settle(half, deliveries.into_iter().map(|delivery| (delivery, Verdict::Ack))).await;
}

async fn close((fetch, settle): (QueueFetch, QueueSettle)) {
    fetch.close().await.unwrap();
    settle.close().await.unwrap();
}

#[tokio::test]
async fn a_stream_is_read_from_where_one_asks() {
    let connection = broker().connect().await.unwrap();
    let stream = stream(&connection, 0..5).await.untracked();
    for (offset, expected) in [
        (StreamOffset::First, 0..5),
        (StreamOffset::At(3), 3..5),
        (StreamOffset::Since(SystemTime::now() - Duration::from_hours(1)), 0..5),
    ] {
        let (mut fetch, half) = stream.clone().offset(offset).open(&connection).await.unwrap();
        let expected: Vec<_> = expected.collect();
        let taken = take(&mut fetch, expected.len()).await;
        assert_eq!(numbers(&taken), expected, "{offset:?}");
        let offsets = taken.iter().map(|delivery| {
            let fields = delivery.fields().downcast_ref::<MessageFields>().unwrap();
            fields.stream_offset().unwrap()
        });
        assert_eq!(offsets.collect::<Vec<_>>(), expected, "{offset:?}");
        assert!(taken[0].headers().is_empty(), "{:?}", taken[0].headers());
        close((fetch, half)).await;
    }
    let mut last = stream
        .clone()
        .offset(StreamOffset::Last)
        .open(&connection)
        .await
        .unwrap();
    let taken = take(&mut last.0, 1).await;
    let mut next = stream
        .clone()
        .offset(StreamOffset::Next)
        .open(&connection)
        .await
        .unwrap();
    publish(&connection, stream.name(), [5]).await;
    assert_eq!(numbers(&take(&mut next.0, 1).await), [5]);
    drop(taken);
    close(last).await;
    close(next).await;
    connection.close().await;
}

#[tokio::test]
async fn a_reader_goes_on_behind_what_it_has_settled() {
    let connection = broker().connect().await.unwrap();
    let stream = stream(&connection, 0..10).await;
    let mut first = stream.open(&connection).await.unwrap();
    let mut taken = take(&mut first.0, 10).await;
    // All but 4 and those from 7 on: a message that was not settled is not passed by.
    taken.truncate(7);
    drop(taken.remove(4));
    ack(&mut first.1, taken).await;
    close(first).await;

    let other = broker().connect().await.unwrap();
    let mut second = stream.open(&other).await.unwrap();
    let taken = take(&mut second.0, 6).await;
    assert_eq!(numbers(&taken), [4, 5, 6, 7, 8, 9]);
    ack(&mut second.1, taken).await;
    close(second).await;

    publish(&connection, stream.name(), [10]).await;
    let mut third = stream.open(&connection).await.unwrap();
    assert_eq!(numbers(&take(&mut third.0, 1).await), [10]);
    close(third).await;
    connection.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_reader_that_is_killed_goes_on_where_its_place_was_kept() {
    let stream = stream(&broker().connect().await.unwrap(), 0..10).await;
    let killed = broker().connect().await.unwrap();
    let mut first = stream.open(&killed).await.unwrap();
    let taken = take(&mut first.0, 5).await;
    ack(&mut first.1, taken).await;
    // Its place is kept within 100 ms; then it ends without a word.
    sleep(Duration::from_millis(500)).await;
    drop(first);
    killed.close().await;

    let connection = broker().connect().await.unwrap();
    let mut second = stream.open(&connection).await.unwrap();
    assert_eq!(numbers(&take(&mut second.0, 5).await), [5, 6, 7, 8, 9]);
    close(second).await;
    connection.close().await;
}

#[tokio::test]
async fn a_stream_has_one_process_for_each_reader() {
    let connection = broker().connect().await.unwrap();
    let stream = stream(&connection, 0..3).await;
    let mut first = stream.open(&connection).await.unwrap();
    let spare = broker().connect().await.unwrap();
    let refused = stream.open(&spare).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert!(
        refused.is_transient() && refused.to_string().contains(".reader("),
        "{refused}"
    );

    let mut other = stream.clone().reader("audit").open(&spare).await.unwrap();
    assert_eq!(numbers(&take(&mut other.0, 3).await), [0, 1, 2]);
    let taken = take(&mut first.0, 3).await;
    assert_eq!(numbers(&taken), [0, 1, 2]);
    ack(&mut first.1, taken).await;
    close(first).await;

    publish(&connection, stream.name(), [3]).await;
    let mut spare_reads = stream.open(&spare).await.unwrap();
    assert_eq!(numbers(&take(&mut spare_reads.0, 1).await), [3]);
    close(spare_reads).await;
    close(other).await;
    connection.close().await;
    spare.close().await;
}

#[tokio::test]
async fn without_a_position_each_start_begins_at_the_offset() {
    let connection = broker().connect().await.unwrap();
    let stream = stream(&connection, 0..3).await.untracked();
    for _ in 0..2 {
        let mut halves = stream.open(&connection).await.unwrap();
        let taken = take(&mut halves.0, 3).await;
        assert_eq!(numbers(&taken), [0, 1, 2]);
        ack(&mut halves.1, taken).await;
        close(halves).await;
    }
    connection.close().await;
}

#[tokio::test]
async fn what_is_given_back_is_handed_out_again_and_keeps_the_place() {
    let connection = broker().connect().await.unwrap();
    let stream = stream(&connection, 0..3).await;
    let mut halves = stream.open(&connection).await.unwrap();
    let taken = take(&mut halves.0, 3).await;
    let retry = Verdict::Retry { after: Duration::ZERO };
    settle(
        &mut halves.1,
        taken.into_iter().zip([Verdict::Release, retry, Verdict::Ack]),
    )
    .await;
    let again = take(&mut halves.0, 2).await;
    assert_eq!(numbers(&again), [0, 1]);
    assert_eq!((again[0].attempt(), again[1].attempt()), (1, 2));
    assert!(!again[1].is_unfinished());
    settle(
        &mut halves.1,
        again.into_iter().zip([Verdict::Return { attempts: 4 }, Verdict::Ack]),
    )
    .await;
    let again = take(&mut halves.0, 1).await;
    assert_eq!((number(&again[0]), again[0].attempt()), (0, 5));
    close(halves).await;

    let mut next = stream.open(&connection).await.unwrap();
    assert_eq!(numbers(&take(&mut next.0, 3).await), [0, 1, 2], "0 was never settled");
    close(next).await;
    connection.close().await;
}

#[tokio::test]
async fn a_lost_link_brings_back_what_was_in_hand_and_nothing_else() {
    let url = servers::shared(Kind::Rabbit).unwrap();
    let (front, rest) = url.rsplit_once(':').unwrap();
    let (port, vhost) = rest.split_once('/').unwrap_or((rest, ""));
    let proxy = Proxy::to(port.parse().unwrap()).unwrap();
    let connection = LapinBroker::new(format!("{front}:{}/{vhost}", proxy.port()))
        .connect()
        .await
        .unwrap();
    for tracked in [true, false] {
        let stream = stream(&connection, 0..6).await;
        let stream = if tracked { stream } else { stream.untracked() };
        let mut halves = stream.open(&connection).await.unwrap();
        let mut taken = take(&mut halves.0, 6).await;
        let in_hand = taken.remove(1);
        drop(taken.split_off(3));
        ack(&mut halves.1, taken).await;
        // Acks behind the gap are told after 5 ms.
        sleep(Duration::from_millis(100)).await;
        proxy.cut();
        let mut again = Vec::new();
        let came = async {
            while again.len() < 3 {
                if halves.0.fetch(10, &mut again).await.is_err() {
                    while halves.0.recover().await.is_err() {
                        sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        };
        timeout(PATIENCE, came).await.expect("it did not go on");
        assert_eq!(numbers(&again), [1, 4, 5], "tracked: {tracked}");
        assert!(
            again
                .iter()
                .all(|delivery| delivery.attempt() == 2 && delivery.is_unfinished())
        );
        let mut late = vec![(in_hand.into_receipt(), Verdict::Ack)];
        assert_eq!(halves.1.settle(&mut late).await.unwrap().stale, 1);
        ack(&mut halves.1, again).await;
        close(halves).await;
    }
    connection.close().await;
}

type Calls = Arc<Mutex<Vec<(u64, u32)>>>;

#[subscriber("ledger")]
async fn book(number: u64, context: Context<'_>, State(calls): State<Calls>) -> Result<(), String> {
    calls.lock().unwrap().push((number, context.attempt()));
    if number == 2 {
        return Err("it cannot be booked".to_owned());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_tries_again_and_gives_up_without_a_copy_in_the_stream() {
    let connection = broker().connect().await.unwrap();
    let stream = stream(&connection, 0..5).await;
    let dead = format!("{}.dead", stream.name());
    let calls = Calls::default();
    let start = || {
        let source = stream.clone();
        RustStream::new(AppInfo::new("ledger", "1"))
            .state(calls.clone())
            .with_broker(broker(), move |broker| {
                let retry = Retry::fixed(Duration::from_millis(50)).attempts(3);
                broker.include(book).source(source).workers(2).retry(retry);
            })
            .start()
    };
    let running = start().await.unwrap();
    let given_up = async {
        loop {
            match connection.dead_letters(&dead).list(10).await {
                Ok(letters) if !letters.is_empty() => break letters,
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let letters = timeout(PATIENCE, given_up).await.expect("no dead letter");
    assert_eq!(letters[0].payload, b"2");
    running.shutdown().await.unwrap();
    let mut seen = calls.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, [(0, 1), (1, 1), (2, 1), (2, 2), (2, 3), (3, 1), (4, 1)]);

    calls.lock().unwrap().clear();
    let running = start().await.unwrap();
    publish(&connection, stream.name(), [9]).await;
    let handled = async {
        while calls.lock().unwrap().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, handled).await.expect("it did not go on");
    running.shutdown().await.unwrap();
    assert_eq!(*calls.lock().unwrap(), [(9, 1)]);
    connection.close().await;
}

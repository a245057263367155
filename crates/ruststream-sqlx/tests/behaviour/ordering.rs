//! Which message comes when: order of keys, priority, times, unique keys; and who gets it: groups. And what stays afterwards.

use std::time::{Duration, SystemTime};

use ruststream::message::{OptionSet, Outgoing};
use ruststream::prelude::*;
use ruststream::transport::{Connection, Delivery, Publish, Verdict};
use ruststream_sqlx::{Inbox, InboxOptions, SqlxConnection, Stored};

use crate::place::Place;
use crate::support::{eventually, numbers, open, payloads, publish, publish_numbers, subscribe};

async fn publish_with_key(connection: &SqlxConnection, key: &str, payload: &str) {
    let message = Outgoing::new("orders", payload.as_bytes()).with_key(key.as_bytes());
    connection.publisher().publish(&[message]).await.unwrap();
}

async fn publish_with(connection: &SqlxConnection, payload: &str, options: InboxOptions) -> Stored {
    let mut set = OptionSet::new();
    set.insert(options);
    let message = Outgoing::new("orders", payload.as_bytes()).with_options(&set);
    connection.publisher().store(&[message]).await.unwrap()[0]
}

#[tokio::test]
async fn of_a_key_one_message_is_in_hand_at_a_time_in_all_processes() {
    let place = Place::new().await;
    let (one, other) = (place.connect().await, place.connect().await);
    for number in 0..3 {
        publish_with_key(&one, "a", &format!("a{number}")).await;
    }
    publish_with_key(&one, "b", "b0").await;
    let fifo = Inbox::queue("orders").fifo();
    let mut here = open(&one, &fifo).await;
    let mut there = open(&other, &fifo).await;

    let first = here.take(2).await;
    assert_eq!(payloads(&first), ["a0", "b0"]);
    assert!(there.finds_nothing().await, "both keys are in hand");

    here.ack(first).await;
    let second = there.next(10).await;
    assert_eq!(payloads(&second), ["a1"]);
    // A retry that waits keeps its place in the order.
    let after = Duration::from_millis(300);
    there.end(second, Verdict::Retry { after }).await;
    assert!(here.finds_nothing().await);
    let again = here.next(10).await;
    assert_eq!((payloads(&again), again[0].attempt()), (vec!["a1".to_owned()], 2));
    here.ack(again).await;
    assert_eq!(payloads(&here.next(10).await), ["a2"]);
}

#[tokio::test]
async fn messages_without_a_key_have_no_order_to_wait_for() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 5).await;
    let mut subscription = open(&connection, &Inbox::queue("orders").fifo()).await;
    assert_eq!(payloads(&subscription.next(10).await), numbers(0..5));
}

#[tokio::test]
async fn the_highest_priority_comes_first() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 2).await;
    publish_with(&connection, "low", InboxOptions::new().priority(1)).await;
    publish_with(&connection, "high", InboxOptions::new().priority(9)).await;
    publish_with(&connection, "high too", InboxOptions::new().priority(9)).await;
    let mut subscription = open(&connection, &Inbox::queue("orders").priority()).await;
    let all = subscription.take(5).await;
    assert_eq!(payloads(&all), ["high", "high too", "low", "0", "1"]);
    subscription.end(all, Verdict::Release).await;
    let mut in_order = open(&connection, &Inbox::queue("orders").priority().fifo()).await;
    assert_eq!(payloads(&in_order.take(3).await), ["high", "high too", "low"]);
}

#[tokio::test]
async fn a_message_runs_at_its_time_and_not_before() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let at = SystemTime::now() + Duration::from_millis(600);
    publish_with(&connection, "later", InboxOptions::new().run_at(at)).await;
    publish_with(&connection, "past", InboxOptions::new().run_at(SystemTime::UNIX_EPOCH)).await;
    let mut subscription = subscribe(&connection, "orders").await;
    assert_eq!(payloads(&subscription.next(10).await), ["past"]);
    assert_eq!(payloads(&subscription.next(10).await), ["later"]);
    let late = SystemTime::now().duration_since(at).unwrap();
    assert!(late < Duration::from_secs(1), "{late:?}");
}

#[tokio::test]
async fn a_time_and_a_delay_exclude_each_other() {
    let place = Place::new().await;
    let mut set = OptionSet::new();
    set.insert(InboxOptions::new().run_at(SystemTime::now()));
    let message = Outgoing::new("orders", b"x")
        .with_options(&set)
        .with_delay(Duration::from_secs(1));
    let error = place.connect().await.publisher().publish(&[message]).await.unwrap_err();
    assert!(error.to_string().contains("give it one of them"), "{error}");
}

#[tokio::test]
async fn a_unique_key_is_stored_once_and_a_duplicate_is_an_answer() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let unique = || InboxOptions::new().unique("order-7");
    assert_eq!(publish_with(&connection, "first", unique()).await, Stored::New);
    assert_eq!(publish_with(&connection, "second", unique()).await, Stored::Duplicate);

    // Among many of one publish too, and each says of itself.
    let (mut known, mut new) = (OptionSet::new(), OptionSet::new());
    known.insert(unique());
    new.insert(InboxOptions::new().unique("order-8"));
    let stored = connection
        .publisher()
        .store(&[
            Outgoing::new("orders", b"plain"),
            Outgoing::new("orders", b"third").with_options(&known),
            Outgoing::new("orders", b"eight").with_options(&new),
            Outgoing::new("orders", b"eight again").with_options(&new),
            Outgoing::new("others", b"elsewhere").with_options(&known),
        ])
        .await
        .unwrap();
    let (fresh, there) = (Stored::New, Stored::Duplicate);
    assert_eq!(stored, [fresh, there, fresh, there, fresh]);

    let mut subscription = subscribe(&connection, "orders").await;
    let all = subscription.take(3).await;
    assert_eq!(payloads(&all), ["first", "plain", "eight"]);
    subscription.ack(all).await;
    assert_eq!(publish_with(&connection, "once more", unique()).await, Stored::New);
}

#[tokio::test]
async fn each_group_gets_each_message_and_shares_it_among_its_own() {
    let place = Place::new().await;
    let (one, other) = (place.connect().await, place.connect().await);
    let inbox = |group: &str| Inbox::queue("orders").group(group);
    let mut billing = open(&one, &inbox("billing")).await;
    let mut shipping = open(&other, &inbox("shipping")).await;
    let mut shipping_too = open(&one, &inbox("shipping")).await;
    publish_numbers(&one, "orders", 10).await;

    let billed = billing.take(10).await;
    assert_eq!(payloads(&billed), numbers(0..10));
    let some = shipping.take(4).await;
    let rest = shipping_too.take(6).await;
    assert_eq!(payloads(&some), numbers(0..4));
    assert_eq!(payloads(&rest), numbers(4..10));
    billing.ack(billed).await;
    shipping.ack(some).await;
    // What one group has trouble with is no one else's.
    shipping_too.end(rest, Verdict::Release).await;
    assert_eq!(payloads(&shipping.take(6).await), numbers(4..10));
    assert!(billing.finds_nothing().await);

    // A delayed one too, and one that a program writes by plain SQL.
    let later = Outgoing::new("orders", b"later").with_delay(Duration::from_millis(300));
    other.publisher().publish(&[later]).await.unwrap();
    assert_eq!(payloads(&billing.next(1).await), ["later"]);
    let insert = format!(
        "INSERT INTO ruststream_messages (queue, payload) VALUES ('orders', {})",
        Place::bytes("78")
    );
    place.sql(&insert).await;
    assert_eq!(payloads(&billing.next(1).await), ["x"]);
}

#[tokio::test]
async fn what_is_done_stays_as_long_as_it_is_kept() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 3).await;
    let mut subscription = open(&connection, &Inbox::queue("orders").keep(Duration::from_millis(700))).await;
    let all = subscription.take(3).await;
    assert_eq!(subscription.ack(all).await.stale, 0);
    let done = "SELECT count(*) FROM ruststream_messages WHERE state = 2 AND processed_at IS NOT NULL";
    assert_eq!(place.number(done).await, 3);
    assert_eq!(connection.queue_counts("orders").await.unwrap().ready, 0);
    assert!(subscription.finds_nothing().await, "it is not handed out again");
    // Who opens the queue next finds it has been kept long enough.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let mut next = open(&connection, &Inbox::queue("orders").keep(Duration::from_millis(700))).await;
    assert!(next.finds_nothing().await);
    eventually(async || place.number(done).await, |left| *left == 0).await;
}

#[tokio::test]
async fn dead_letters_go_when_they_were_kept_long_enough() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 1_200).await;
    place
        .sql("UPDATE ruststream_messages SET state = 1, dead_at = published_at")
        .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let inbox = Inbox::queue("orders").keep_dead(Duration::from_millis(10));
    let mut subscription = open(&connection, &inbox).await;
    assert!(subscription.finds_nothing().await);
    let left = "SELECT count(*) FROM ruststream_messages";
    eventually(async || place.number(left).await, |left| *left == 0).await;
}

#[subscriber("orders", reply = "receipts")]
async fn receipt(order: u64) -> u64 {
    order + 100
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_is_stored_by_the_ack_of_its_message() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 50).await;
    let app = RustStream::new(AppInfo::new("replies", "1.0.0"))
        .with_broker(place.broker(), |broker| {
            broker.include(receipt).workers(4);
        })
        .start()
        .await
        .unwrap();
    let mut receipts = subscribe(&connection, "receipts").await;
    let mut all = payloads(&receipts.take(50).await);
    all.sort_by_key(|number| number.parse::<u64>().unwrap());
    assert_eq!(all, numbers(100..150));
    app.shutdown().await.unwrap();
    assert_eq!(
        place
            .number("SELECT count(*) FROM ruststream_messages WHERE queue = 'orders'")
            .await,
        0
    );
}

#[tokio::test]
async fn a_reply_to_a_message_that_was_lost_is_not_stored() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish(&connection, "orders", &[b"x"]).await;
    let lease = Duration::from_millis(50);
    let mut slow = open(&connection, &Inbox::queue("orders").lease(lease)).await;
    let mut quick = open(&connection, &Inbox::queue("orders").lease(Duration::from_secs(30))).await;
    let mut late = slow.next_one().await;
    let mut again = quick.next_one().await;
    let reply = [Outgoing::new("receipts", b"done")];
    late.enclose(&reply).unwrap().unwrap();
    again.enclose(&reply).unwrap().unwrap();
    assert_eq!(slow.ack(vec![late]).await.stale, 1);
    assert_eq!(quick.ack(vec![again]).await.stale, 0);
    let receipts = "SELECT count(*) FROM ruststream_messages WHERE queue = 'receipts'";
    assert_eq!(place.number(receipts).await, 1);
}

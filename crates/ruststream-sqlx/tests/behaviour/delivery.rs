//! What is published comes out as it went in, in order, and once.

use std::time::{Duration, SystemTime};

use crate::place::Place;
use crate::support;
use crate::support::{numbers, payloads, publish, publish_numbers, receipts, subscribe};
use ruststream::message::{HeaderMap, Outgoing, header};
use ruststream::transport::{Connection, Delivery, Fetch, Publish, Settle, Source, Verdict};
use ruststream_sqlx::{Inbox, InboxRow};

#[tokio::test]
async fn messages_come_in_the_order_they_were_published_and_once() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 300).await;
    let mut orders = subscribe(&connection, "orders").await;

    let mut seen = Vec::new();
    while seen.len() < 300 {
        let chunk = orders.next(64).await;
        assert!(chunk.len() <= 64);
        seen.extend(payloads(&chunk));
        assert_eq!(orders.ack(chunk).await.stale, 0);
    }

    assert_eq!(seen, numbers(0..300));
    assert!(orders.finds_nothing().await);
    assert_eq!(place.number("SELECT count(*) FROM ruststream_messages").await, 0);
}

#[tokio::test]
async fn any_payload_comes_back_byte_for_byte() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let large: Vec<u8> = (0..1_048_576_u32).map(|byte| (byte % 251) as u8).collect();
    let binary: Vec<u8> = (0..=255).collect();
    let all: [&[u8]; 5] = [b"", "gr\u{fc}\u{df}e \u{1f980}".as_bytes(), &binary, &large, b"\0\0"];
    publish(&connection, "orders", &all).await;

    let mut orders = subscribe(&connection, "orders").await;
    let got = orders.take(5).await;

    for (delivery, sent) in got.iter().zip(all) {
        assert!(delivery.payload() == sent, "{} bytes", sent.len());
    }
}

#[tokio::test]
async fn headers_key_and_time_come_along() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let mut headers = HeaderMap::new();
    headers.append("trace", vec![0xff, 0x00, 0xfe]);
    headers.append("trace", "again");
    headers.append("", "");
    headers.append("gr\u{fc}n \u{1f980}", "ja");
    let before = SystemTime::now() - Duration::from_millis(1);
    let message = Outgoing::new("orders", b"x")
        .with_headers(&headers)
        .with_key(b"\xffkey");
    connection.publisher().publish(&[message]).await.unwrap();

    let mut orders = subscribe(&connection, "orders").await;
    let delivery = orders.next_one().await;

    assert_eq!(*delivery.headers(), headers);
    assert_eq!(delivery.key(), Some(&b"\xffkey"[..]));
    assert_eq!(delivery.attempt(), 1);
    let published = delivery.published_at().unwrap();
    assert!(published >= before && published <= SystemTime::now());
    assert_eq!(delivery.fields().downcast_ref::<InboxRow>().unwrap().id, 1);
}

#[tokio::test]
async fn a_key_in_the_headers_is_a_key() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let headers: HeaderMap = [(header::KEY, "customer-7")].into_iter().collect();
    let message = Outgoing::new("orders", b"x").with_headers(&headers);
    connection.publisher().publish(&[message]).await.unwrap();

    let delivery = subscribe(&connection, "orders").await.next_one().await;

    assert_eq!(delivery.key(), Some(&b"customer-7"[..]));
}

#[tokio::test]
async fn queues_with_any_name_are_apart() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let long = "n".repeat(200);
    let names = [
        "orders",
        "Orders",
        "'; DROP TABLE ruststream_messages; --",
        "\u{1f980}\n\t",
        "a",
        "%_",
        &long,
    ];
    for name in names {
        publish(&connection, name, &[name.as_bytes()]).await;
    }
    for name in names {
        let mut queue = subscribe(&connection, name).await;
        let got = queue.next(64).await;
        assert_eq!(payloads(&got), [name]);
        queue.ack(got).await;
    }
}

#[tokio::test]
async fn a_name_that_cannot_be_is_refused_with_a_reason() {
    let place = Place::new().await;
    let connection = place.connect().await;
    for (name, word) in [
        (String::new(), "empty"),
        ("n".repeat(201), "201 bytes"),
        ("a\0b".to_owned(), "NUL"),
    ] {
        let queue = Inbox::queue(&name);
        let error = queue.check().unwrap_err();
        assert!(!error.is_transient());
        assert_eq!(
            queue.open(&connection).await.err().map(|error| error.to_string()),
            Some(error.to_string())
        );
        assert!(error.to_string().contains(word), "{error}");
        let refused = connection
            .publisher()
            .publish(&[Outgoing::new(&name, b"x")])
            .await
            .unwrap_err();
        assert!(refused.to_string().contains(word), "{refused}");
    }
}

#[tokio::test]
async fn a_row_written_by_hand_is_a_message() {
    let place = Place::new().await;
    let connection = place.connect().await;
    place
        .sql("INSERT INTO ruststream_messages (queue, payload) VALUES ('orders', '{\"a\":1}')")
        .await;

    let mut orders = subscribe(&connection, "orders").await;
    let got = orders.next(10).await;

    assert_eq!(payloads(&got), ["{\"a\":1}"]);
    assert_eq!(got[0].attempt(), 1);
    orders.ack(got).await;
}

#[tokio::test]
async fn many_publishers_and_subscribers_lose_and_double_nothing() {
    let place = Place::new().await;
    let connection = std::sync::Arc::new(place.connect().await);
    let publishers: Vec<_> = (0..8)
        .map(|publisher| {
            let connection = std::sync::Arc::clone(&connection);
            tokio::spawn(async move {
                for number in 0..100 {
                    publish(&connection, "orders", &[format!("{publisher}-{number}").as_bytes()]).await;
                }
            })
        })
        .collect();
    let (sender, mut seen) = tokio::sync::mpsc::channel(1_000);
    for _ in 0..4 {
        let mut orders = subscribe(&connection, "orders").await;
        let sender = sender.clone();
        tokio::spawn(async move {
            loop {
                let chunk = orders.next(7).await;
                for payload in payloads(&chunk) {
                    sender.send(payload).await.unwrap();
                }
                assert_eq!(orders.ack(chunk).await.stale, 0);
            }
        });
    }
    for publisher in publishers {
        publisher.await.unwrap();
    }
    let mut all = std::collections::BTreeSet::new();
    for _ in 0..800 {
        let payload = tokio::time::timeout(support::PATIENCE, seen.recv())
            .await
            .unwrap()
            .unwrap();
        assert!(all.insert(payload.clone()), "{payload} came twice");
    }
}

#[tokio::test]
async fn a_fetch_that_was_dropped_loses_nothing() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let mut orders = subscribe(&connection, "orders").await;
    // Given: a fetch that waits is dropped, and rows come for it.
    assert!(orders.finds_nothing().await);
    publish_numbers(&connection, "orders", 5).await;
    // Then: the next one hands them out, first time.
    let got = orders.take(5).await;
    assert_eq!(payloads(&got), numbers(0..5));
    assert!(got.iter().all(|delivery| delivery.attempt() == 1));
    orders.ack(got).await;

    // Dropped at any moment, again and again.
    publish_numbers(&connection, "orders", 50).await;
    let mut seen = Vec::new();
    let mut patience = 0;
    while seen.len() < 50 {
        let mut into = Vec::new();
        let fetch = orders.fetch.fetch(3, &mut into);
        if let Ok(fetched) = tokio::time::timeout(Duration::from_micros(patience), fetch).await {
            fetched.unwrap();
        }
        patience = (patience + 37) % 2_000;
        seen.extend(payloads(&into));
        orders.ack(into).await;
    }
    assert_eq!(seen, numbers(0..50));
}

#[tokio::test]
async fn a_claim_for_more_than_there_is_room_is_kept_for_later_fetches() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let mut orders = subscribe(&connection, "orders").await;
    let mut into = Vec::new();
    let waiting = tokio::time::timeout(Duration::from_millis(50), orders.fetch.fetch(10, &mut into)).await;
    assert!(waiting.is_err());
    publish_numbers(&connection, "orders", 10).await;

    let mut seen = Vec::new();
    while seen.len() < 10 {
        let chunk = orders.next(3).await;
        assert!(chunk.len() <= 3);
        seen.extend(payloads(&chunk));
        orders.ack(chunk).await;
    }

    assert_eq!(seen, numbers(0..10));
}

#[tokio::test]
async fn closing_gives_back_what_was_not_handed_out() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let mut first = subscribe(&connection, "orders").await;
    let mut into = Vec::new();
    let waiting = tokio::time::timeout(Duration::from_millis(50), first.fetch.fetch(10, &mut into)).await;
    assert!(waiting.is_err());
    publish_numbers(&connection, "orders", 10).await;
    let in_hand = first.next(2).await;

    first.fetch.close().await.unwrap();

    let mut second = subscribe(&connection, "orders").await;
    let again = second.take(8).await;
    assert_eq!(payloads(&again), numbers(2..10));
    assert!(
        again.iter().all(|delivery| delivery.attempt() == 1),
        "the attempt was given back"
    );
    // What was handed out can still be settled.
    let mut finished = receipts(in_hand, &Verdict::Ack);
    assert_eq!(first.settle.settle(&mut finished).await.unwrap().stale, 0);
}

#[tokio::test]
async fn dropping_the_half_gives_back_what_comes_for_it() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let mut first = subscribe(&connection, "orders").await;
    assert!(first.finds_nothing().await);
    drop(first);
    publish_numbers(&connection, "orders", 3).await;

    let got = subscribe(&connection, "orders").await.take(3).await;

    assert_eq!(payloads(&got), numbers(0..3));
    assert!(got.iter().all(|delivery| delivery.attempt() == 1));
}

#[tokio::test]
async fn headers_that_cannot_be_decoded_make_a_dead_letter_and_stop_no_one() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let (payload, headers) = (Place::bytes("00ff"), Place::bytes("ffffffff00"));
    let insert =
        format!("INSERT INTO ruststream_messages (queue, payload, headers) VALUES ('orders', {payload}, {headers})");
    place.sql(&insert).await;
    publish_numbers(&connection, "orders", 3).await;

    let mut orders = subscribe(&connection, "orders").await;
    let got = orders.take(3).await;

    assert_eq!(payloads(&got), numbers(0..3));
    let dead = support::eventually(
        async || connection.dead_letters().list("orders", 10).await.unwrap(),
        |dead| !dead.is_empty(),
    )
    .await;
    assert_eq!(dead[0].reason, "undecodable");
    assert_eq!(dead[0].payload, [0, 255]);
    assert_eq!(dead[0].header_block, [255, 255, 255, 255, 0]);
    assert_eq!(dead[0].attempts, 1);
}

#[tokio::test]
async fn a_source_says_what_the_table_does_itself() {
    let inbox = Inbox::queue("orders").lease(Duration::from_millis(300));
    let capabilities = inbox.capabilities();
    assert_eq!(inbox.name(), "orders");
    assert_eq!(capabilities.lease(), Some(Duration::from_millis(300)));
    assert!(capabilities.delay() && capabilities.dead_letters() && capabilities.attempts());
}

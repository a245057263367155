//! What becomes of a delivery: acked, retried, released, dead, or lost with its lease.

use std::time::{Duration, UNIX_EPOCH};

use crate::place::Place;
use crate::support::{numbers, open, payloads, publish, publish_numbers, receipts, subscribe};
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::transport::{Connection, DeadLetter, DeadReason, Delivery, Publish, Settle, Verdict};
use ruststream_sqlx::Inbox;
use tokio::time::Instant;

fn letter(error: &str) -> Verdict {
    Verdict::DeadLetter(Box::new(DeadLetter {
        reason: DeadReason::Rejected,
        error: error.to_owned(),
        attempts: 3,
        source: "confirm".to_owned(),
        at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
    }))
}

fn retry(millis: u64) -> Verdict {
    Verdict::Retry {
        after: Duration::from_millis(millis),
    }
}

#[tokio::test]
async fn a_retry_comes_again_after_its_delay_and_counts() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish(&connection, "orders", &[b"x"]).await;
    let mut orders = subscribe(&connection, "orders").await;
    let mut got = orders.next(1).await;
    for attempt in 2..=4 {
        let start = Instant::now();
        orders.end(got, retry(80)).await;
        got = orders.next(1).await;
        assert!(start.elapsed() >= Duration::from_millis(79), "{:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        assert_eq!(got[0].attempt(), attempt);
    }
}

#[tokio::test]
async fn a_released_message_keeps_its_place_and_its_attempt() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 6).await;
    let mut orders = subscribe(&connection, "orders").await;
    let got = orders.take(4).await;

    orders.end(got, Verdict::Release).await;

    let again = orders.take(6).await;
    assert_eq!(payloads(&again), numbers(0..6));
    assert!(again.iter().all(|delivery| delivery.attempt() == 1));
}

#[tokio::test]
async fn each_receipt_of_a_group_gets_its_own_verdict() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 10).await;
    let mut orders = subscribe(&connection, "orders").await;
    let mut finished = receipts(orders.take(10).await, &Verdict::Ack);
    finished[3].1 = retry(0);
    finished[5].1 = Verdict::Release;
    finished[7].1 = letter("no such customer");

    let settled = orders.settle.settle(&mut finished).await.unwrap();

    assert_eq!(settled.stale, 0);
    assert!(finished.is_empty());
    let mut again: Vec<_> = orders
        .take(2)
        .await
        .iter()
        .map(|d| (payloads(std::slice::from_ref(d)).remove(0), d.attempt()))
        .collect();
    again.sort();
    assert_eq!(again, [("3".to_owned(), 2), ("5".to_owned(), 1)]);
    let counts = connection.queue_counts("orders").await.unwrap();
    assert_eq!(
        (counts.ready, counts.leased, counts.scheduled, counts.dead),
        (0, 2, 0, 1)
    );
}

#[tokio::test]
async fn receipts_of_several_claims_are_settled_together() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 9).await;
    publish(&connection, "others", &[b"x"]).await;
    let mut orders = subscribe(&connection, "orders").await;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(orders.next(3).await);
    }
    all.reverse();
    all.swap(0, 5);
    let kept = all.remove(4);

    assert_eq!(orders.ack(all).await.stale, 0);

    assert_eq!(
        place
            .number("SELECT count(*) FROM ruststream_messages WHERE queue = 'orders'")
            .await,
        1
    );
    assert_eq!(
        place
            .number("SELECT count(*) FROM ruststream_messages WHERE queue = 'others'")
            .await,
        1
    );
    orders.ack(vec![kept]).await;
    assert_eq!(
        place
            .number("SELECT count(*) FROM ruststream_messages WHERE queue = 'orders'")
            .await,
        0
    );
}

#[tokio::test]
async fn a_lease_that_ran_out_gives_the_message_to_another_and_fences_the_first_off() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish(&connection, "orders", &[b"x"]).await;
    let inbox = Inbox::queue("orders").lease(Duration::from_millis(100));
    let mut slow = open(&connection, &inbox).await;
    let mut other = subscribe(&connection, "orders").await;
    let late = slow.next(1).await;

    let again = other.next(1).await;
    assert_eq!(again[0].attempt(), 2);
    assert_ne!(late[0].lease_id(), again[0].lease_id());
    for verdict in [Verdict::Ack, retry(0), letter("late"), Verdict::Release] {
        // Each of them is harmless; the receipt is used up by the first, so the row is claimed anew for the next.
        if matches!(verdict, Verdict::Ack) {
            let mut lost = Vec::new();
            slow.settle.renew(&mut lost).await.unwrap();
            assert_eq!(lost, [late[0].lease_id()]);
            lost.clear();
            slow.settle.renew(&mut lost).await.unwrap();
            assert!(lost.is_empty(), "told once");
        }
    }
    assert_eq!(slow.ack(late).await.stale, 1);
    assert_eq!(place.number("SELECT attempt FROM ruststream_messages").await, 2);
    assert_eq!(other.ack(again).await.stale, 0);
}

#[tokio::test]
async fn no_late_verdict_does_anything() {
    for verdict in [Verdict::Ack, retry(0), letter("late"), Verdict::Release] {
        let place = Place::new().await;
        let connection = place.connect().await;
        publish(&connection, "orders", &[b"x"]).await;
        let inbox = Inbox::queue("orders").lease(Duration::from_millis(50));
        let mut slow = open(&connection, &inbox).await;
        let mut other = subscribe(&connection, "orders").await;
        let late = slow.next(1).await;
        let again = other.next(1).await;

        assert_eq!(slow.end(late, verdict.clone()).await.stale, 1, "{verdict:?}");

        assert_eq!(
            place
                .number("SELECT attempt * 10 + state FROM ruststream_messages")
                .await,
            20,
            "{verdict:?}"
        );
        assert_eq!(other.ack(again).await.stale, 0, "{verdict:?}");
    }
}

#[tokio::test]
async fn a_row_deleted_under_its_handler_is_lost_once_and_its_ack_is_stale() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 2).await;
    let mut orders = subscribe(&connection, "orders").await;
    let got = orders.take(2).await;
    let zero = Place::bytes("30");
    place
        .sql(&format!("DELETE FROM ruststream_messages WHERE payload = {zero}"))
        .await;

    let mut lost = Vec::new();
    orders.settle.renew(&mut lost).await.unwrap();
    orders.settle.renew(&mut lost).await.unwrap();

    assert_eq!(lost, [got[0].lease_id()]);
    assert_eq!(orders.ack(got).await.stale, 1);
}

#[tokio::test]
async fn a_dead_letter_keeps_its_bytes_and_tells_its_history() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let headers: HeaderMap = [("trace", vec![0xff, 0x01])].into_iter().collect();
    let message = Outgoing::new("orders", b"\xfe\x00bad")
        .with_headers(&headers)
        .with_key(b"k");
    connection.publisher().publish(&[message]).await.unwrap();
    let mut orders = subscribe(&connection, "orders").await;
    let got = orders.next(1).await;
    let published = got[0].published_at().unwrap();

    orders.end(got, letter("no such customer: \u{1f980}")).await;

    let dead = connection.dead_letters().list("orders", 10).await.unwrap();
    let [dead] = &dead[..] else { panic!("{dead:?}") };
    assert_eq!(dead.payload, b"\xfe\x00bad");
    assert_eq!(dead.headers, headers);
    assert_eq!(dead.key.as_deref(), Some(&b"k"[..]));
    assert_eq!(dead.reason, "rejected");
    assert_eq!(dead.error, "no such customer: \u{1f980}");
    assert_eq!((dead.attempts, dead.source.as_str()), (3, "confirm"));
    assert_eq!(dead.dead_at, UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    assert_eq!(dead.published_at, published);
    assert_eq!(
        connection.dead_letters().show(dead.id).await.unwrap().as_ref(),
        Some(dead)
    );
    assert!(orders.finds_nothing().await);
}

#[tokio::test]
async fn dead_letters_are_replayed_and_purged() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 5).await;
    publish_numbers(&connection, "others", 1).await;
    let mut orders = subscribe(&connection, "orders").await;
    let mut others = subscribe(&connection, "others").await;
    let got = orders.take(5).await;
    orders.end(got, letter("no")).await;
    let got = others.take(1).await;
    others.end(got, letter("no")).await;
    let letters = connection.dead_letters();
    let ids: Vec<i64> = letters
        .list("orders", 10)
        .await
        .unwrap()
        .iter()
        .map(|dead| dead.id)
        .collect();
    assert_eq!(letters.list("orders", 2).await.unwrap().len(), 2);

    // One is replayed while a subscription waits: it comes at once, counted from the start.
    let waiting = tokio::spawn(async move {
        let got = orders.next(1).await;
        (orders, got)
    });
    assert!(letters.replay(ids[1]).await.unwrap());
    let (mut orders, got) = waiting.await.unwrap();
    assert_eq!((payloads(&got), got[0].attempt()), (vec!["1".to_owned()], 1));
    orders.ack(got).await;
    assert!(
        !letters.replay(ids[1]).await.unwrap(),
        "there is no such letter any more"
    );

    assert!(letters.purge(ids[0]).await.unwrap());
    assert!(!letters.purge(ids[0]).await.unwrap());
    assert_eq!(letters.show(ids[0]).await.unwrap(), None);
    assert_eq!(letters.replay_queue("orders").await.unwrap(), 3);
    let again = orders.take(3).await;
    assert_eq!(payloads(&again), ["2", "3", "4"]);
    orders.end(again, letter("still no")).await;
    assert_eq!(letters.purge_queue("orders").await.unwrap(), 3);
    assert_eq!(connection.queue_counts("orders").await.unwrap().dead, 0);
    assert_eq!(connection.queue_counts("others").await.unwrap().dead, 1);
}

#[tokio::test]
async fn ids_beyond_two_to_the_31_and_near_the_end_work() {
    for sequence in [2_147_483_700_i64, 9_007_199_254_740_993, i64::MAX - 100] {
        let place = Place::new().await;
        let connection = place.connect().await;
        place.next_id(sequence + 1).await;
        publish_numbers(&connection, "orders", 8).await;
        let mut orders = subscribe(&connection, "orders").await;
        let got = orders.take(8).await;
        assert_eq!(
            place.number("SELECT min(id) FROM ruststream_messages").await,
            sequence + 1
        );
        let mut lost = Vec::new();
        orders.settle.renew(&mut lost).await.unwrap();
        assert!(lost.is_empty());
        let mut finished = receipts(got, &Verdict::Ack);
        finished[1].1 = retry(0);
        finished[2].1 = Verdict::Release;
        finished[4].1 = letter("no");
        assert_eq!(orders.settle.settle(&mut finished).await.unwrap().stale, 0);
        let again = orders.take(2).await;
        assert_eq!(orders.ack(again).await.stale, 0);
        assert_eq!(connection.dead_letters().replay_queue("orders").await.unwrap(), 1);
        let replayed = orders.take(1).await;
        assert_eq!(payloads(&replayed), ["4"]);
        assert_eq!(orders.ack(replayed).await.stale, 0);
    }
}

#[tokio::test]
async fn a_lease_and_a_delay_may_be_longer_than_any_clock() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 2).await;
    let later = Outgoing::new("orders", b"later").with_delay(Duration::MAX);
    connection.publisher().publish(&[later]).await.unwrap();
    let mut orders = open(&connection, &Inbox::queue("orders").lease(Duration::MAX)).await;
    let mut got = orders.take(2).await;
    let mut lost = Vec::new();
    orders.settle.renew(&mut lost).await.unwrap();
    assert!(lost.is_empty());
    let first = got.remove(0);
    orders.end(vec![first], Verdict::Retry { after: Duration::MAX }).await;
    assert_eq!(orders.ack(got).await.stale, 0);
    assert_eq!(connection.queue_counts("orders").await.unwrap().scheduled, 2);
}

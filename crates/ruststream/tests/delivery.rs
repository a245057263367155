//! What a handler's return means for its message.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::fmt;

use common::{Record, health, publish_ids, start, start_one, within};
use ruststream::memory::Operation;
use ruststream::message::HeaderMap;
use ruststream::prelude::*;
use ruststream::transport::{DeadReason, ErrorKind};

type Seen = Record<(u64, u32)>;

#[derive(Debug)]
struct Refused(u64);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {} was refused", self.0)?;
        if f.alternate() {
            f.write_str(": the card: no credit")?;
        }
        Ok(())
    }
}

#[subscriber("orders")]
async fn nothing(_order: u64) {}

#[subscriber("orders")]
async fn fallible(id: u64, State(seen): State<Seen>, context: Context<'_>) -> Result<(), Refused> {
    seen.add((id, context.attempt()));
    if id.is_multiple_of(2) { Ok(()) } else { Err(Refused(id)) }
}

#[subscriber("orders")]
async fn outcome(id: u64, State(seen): State<Seen>, context: Context<'_>) -> HandlerOutcome {
    seen.add((id, context.attempt()));
    match (id, context.attempt()) {
        (1, 1) => HandlerOutcome::retry(),
        (2, 1) => HandlerOutcome::retry_after(Duration::from_secs(90)),
        (3, _) => HandlerOutcome::drop(),
        (4, _) => HandlerOutcome::dead_letter("no such customer"),
        _ => HandlerOutcome::ack(),
    }
}

#[subscriber("orders")]
async fn outcome_as_error(id: u64, State(seen): State<Seen>, context: Context<'_>) -> Result<(), HandlerOutcome> {
    seen.add((id, context.attempt()));
    match id {
        1 => Err(HandlerOutcome::drop()),
        2 => Err(HandlerOutcome::dead_letter("unwanted")),
        3 => Err(HandlerOutcome::ack()),
        _ => Ok(()),
    }
}

#[subscriber("orders")]
async fn outcome_or_error(id: u64) -> Result<HandlerOutcome, String> {
    match id {
        1 => Ok(HandlerOutcome::dead_letter("said")),
        2 => Err("failed".to_owned()),
        _ => Ok(HandlerOutcome::ack()),
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    order: u64,
}

#[subscriber("orders", reply = "receipts")]
async fn reply(id: u64, State(seen): State<Seen>, context: Context<'_>) -> Receipt {
    seen.add((id, context.attempt()));
    Receipt { order: id }
}

#[subscriber("orders", reply = "receipts")]
async fn reply_or_error(id: u64, State(seen): State<Seen>, context: Context<'_>) -> Result<Receipt, Refused> {
    seen.add((id, context.attempt()));
    if id.is_multiple_of(2) {
        Ok(Receipt { order: id })
    } else {
        Err(Refused(id))
    }
}

/// A reply that has no form in JSON.
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it has no form"))
    }
}

#[subscriber("orders", reply = "receipts")]
async fn unwritable(_order: u64) -> Unwritable {
    Unwritable
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_returns_nothing_acks() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(nothing);
    })
    .await;

    publish_ids(&broker, "orders", 1..=3).await;
    within(broker.idle("orders")).await;

    assert_eq!(broker.counts("orders").acked, 3);
    assert_eq!(health(&running).acked, 3);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_is_retried_and_its_text_kept_with_its_causes() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, fallible, |orders| {
        orders.retry(Retry::fixed(Duration::from_secs(1)).attempts(2));
    })
    .await;

    publish_ids(&broker, "orders", [1, 2]).await;
    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), [(1, 1), (2, 1), (1, 2)]);
    let dead = broker.dead_letters("orders");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].letter.error, "order 1 was refused: the card: no credit");
    assert_eq!(dead[0].letter.reason, DeadReason::AttemptsExhausted);
    assert_eq!((dead[0].letter.attempts, &dead[0].letter.source[..]), (2, "orders"));
    let health = health(&running);
    assert_eq!(
        (health.acked, health.failed, health.retried, health.dead_lettered),
        (1, 2, 1, 1)
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outcome_does_what_it_says() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, outcome, |orders| {
        orders.retry(Retry::fixed(Duration::from_secs(1)));
    })
    .await;
    let begun = tokio::time::Instant::now();

    publish_ids(&broker, "orders", 1..=5).await;
    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (2, 2)]);
    assert_eq!(begun.elapsed().as_secs(), 90);
    let dead = broker.dead_letters("orders");
    assert_eq!(
        (&dead[0].payload[..], &dead[0].letter.error[..]),
        (&b"4"[..], "no such customer")
    );
    assert_eq!((dead.len(), dead[0].letter.reason), (1, DeadReason::Rejected));
    let health = health(&running);
    assert_eq!(
        (health.acked, health.dropped, health.retried, health.dead_lettered),
        (3, 1, 2, 1)
    );
    assert_eq!(health.failed, 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outcome_may_stand_in_the_error() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, outcome_as_error, |_| {}).await;

    publish_ids(&broker, "orders", 1..=4).await;
    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), [(1, 1), (2, 1), (3, 1), (4, 1)]);
    let dead = broker.dead_letters("orders");
    assert_eq!((dead.len(), &dead[0].letter.error[..]), (1, "unwanted"));
    let health = health(&running);
    assert_eq!((health.acked, health.dropped, health.failed), (2, 1, 0));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outcome_and_an_error_may_stand_in_one_result() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(outcome_or_error).retry(Retry::never());
    })
    .await;

    publish_ids(&broker, "orders", 1..=3).await;
    within(broker.idle("orders")).await;

    let errors: Vec<_> = broker
        .dead_letters("orders")
        .into_iter()
        .map(|dead| dead.letter.error)
        .collect();
    assert_eq!(errors, ["said", "failed"]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_confirmed_before_the_message_is_acked() {
    // Given a reply queue that is full.
    let broker = MemoryBroker::new().capacity(1).publish_deadline(Duration::from_secs(3));
    publish_ids(&broker, "receipts", [0]).await;
    let seen = Seen::default();
    let running = start_one(&broker, &seen, reply, |orders| {
        orders.retry(Retry::fixed(Duration::from_secs(1)));
    })
    .await;

    // When a message is handled.
    publish_ids(&broker, "orders", [7]).await;
    seen.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    // Then it is not acked while the reply is under way.
    assert_eq!((broker.held("orders"), health(&running).acked), (1, 0));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_not_confirmed_is_a_failed_attempt() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, reply, |orders| {
        orders.retry(Retry::fixed(Duration::from_secs(1)));
    })
    .await;

    publish_ids(&broker, "orders", [7]).await;
    broker.fail_next(Operation::Publish, 1, ErrorKind::Unavailable);
    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), [(7, 1), (7, 2)]);
    let receipts = broker.published("receipts");
    assert_eq!(
        serde_json::from_slice::<Receipt>(&receipts[0].payload).unwrap(),
        Receipt { order: 7 }
    );
    let health = health(&running);
    assert_eq!(
        (receipts.len(), health.acked, health.failed, health.retried),
        (1, 1, 1, 1)
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_never_confirmed_ends_as_a_dead_letter() {
    let broker = MemoryBroker::new()
        .capacity(1)
        .publish_deadline(Duration::from_millis(10));
    publish_ids(&broker, "receipts", [0]).await;
    let seen = Seen::default();
    let running = start_one(&broker, &seen, reply, |orders| {
        orders.retry(Retry::fixed(Duration::from_secs(1)).attempts(3));
    })
    .await;

    publish_ids(&broker, "orders", [7]).await;
    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), [(7, 1), (7, 2), (7, 3)]);
    let dead = broker.dead_letters("orders");
    assert_eq!((dead.len(), dead[0].letter.attempts), (1, 3));
    assert!(
        dead[0].letter.error.contains("the reply was not confirmed"),
        "{}",
        dead[0].letter.error
    );
    assert!(
        dead[0].letter.error.contains("`receipts` is full"),
        "{}",
        dead[0].letter.error
    );
    assert_eq!(health(&running).acked, 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_or_an_error_may_stand_in_one_result() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, reply_or_error, |orders| {
        orders.retry(Retry::never());
    })
    .await;

    publish_ids(&broker, "orders", 1..=4).await;
    within(broker.idle("orders")).await;

    let receipts: Vec<Receipt> = broker
        .published("receipts")
        .iter()
        .map(|receipt| serde_json::from_slice(&receipt.payload).unwrap())
        .collect();
    assert_eq!(receipts, [Receipt { order: 2 }, Receipt { order: 4 }]);
    assert_eq!(broker.dead_letters("orders").len(), 2);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_without_a_form_is_a_failed_attempt() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(unwritable).retry(Retry::never());
    })
    .await;

    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;

    let dead = broker.dead_letters("orders");
    assert!(
        dead[0].letter.error.contains("it has no form"),
        "{}",
        dead[0].letter.error
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_carries_the_correlation_of_its_request() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, reply, |_| {}).await;

    let correlated: HeaderMap = [("correlation-id", "c-1"), ("message-id", "m-1")].into_iter().collect();
    common::publish_with(&broker, "orders", b"1", &correlated).await;
    let identified: HeaderMap = [("message-id", "m-2")].into_iter().collect();
    common::publish_with(&broker, "orders", b"2", &identified).await;
    publish_ids(&broker, "orders", [3]).await;
    within(broker.idle("orders")).await;

    let ids: Vec<_> = broker
        .published("receipts")
        .iter()
        .map(|receipt| receipt.headers.get_str("correlation-id").map(str::to_owned))
        .collect();
    assert_eq!(ids, [Some("c-1".to_owned()), Some("m-2".to_owned()), None]);
    assert_eq!(
        broker.published("receipts")[0].headers.get_str("content-type"),
        Some("application/json")
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_of_a_stopped_app_waits_for_the_next() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(nothing);
    })
    .await;
    running.shutdown().await.unwrap();
    publish_ids(&broker, "orders", 1..=2).await;
    assert_eq!(broker.held("orders"), 2);

    let running = start(broker.clone(), |scope| {
        scope.include(nothing);
    })
    .await;
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();
}

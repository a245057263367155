//! What a handler can ask for beside its message.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use common::{Record, health, publish, publish_ids, publish_with, start_one, within};
use ruststream::handler::{Call, Extract, FromState};
use ruststream::memory::{Origin, Queue};
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::prelude::*;
use ruststream::transport::{DeadReason, Publish};

type Seen = Record<String>;

#[derive(Debug, Deserialize)]
struct Order {
    id: u64,
}

#[derive(Debug, Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[subscriber("orders")]
async fn owned(Order { id, .. }: Order, State(seen): State<Seen>) {
    seen.add(format!("{id}"));
}

#[subscriber("orders")]
async fn lent(order: &Order, State(seen): State<Seen>) {
    seen.add(format!("{}", order.id));
}

#[subscriber("orders")]
async fn bytes(payload: &[u8], State(seen): State<Seen>) {
    seen.add(format!("{payload:?}"));
}

#[subscriber("orders")]
async fn borrowed(event: Event<'_>, State(seen): State<Seen>) {
    let is_borrowed = matches!(event.name, Cow::Borrowed(_));
    tokio::task::yield_now().await;
    seen.add(format!("{} {is_borrowed}", event.name));
}

#[subscriber("orders")]
async fn text(text: &str, State(seen): State<Seen>) {
    seen.add(text.to_owned());
}

#[tokio::test(start_paused = true)]
async fn the_message_comes_in_the_form_that_is_asked_for() {
    async fn sees<H: ruststream::handler::Subscriber<Seen>>(handler: H, payload: &str) -> Vec<String> {
        let (broker, seen) = (MemoryBroker::new(), Seen::default());
        let running = start_one(&broker, &seen, handler, |_| {}).await;
        publish(&broker, "orders", [payload]).await;
        within(broker.idle("orders")).await;
        running.shutdown().await.unwrap();
        seen.all()
    }
    assert_eq!(sees(owned, r#"{"id":7}"#).await, ["7"]);
    assert_eq!(sees(lent, r#"{"id":7}"#).await, ["7"]);
    assert_eq!(sees(bytes, "\u{1}x").await, ["[1, 120]"]);
    assert_eq!(sees(bytes, "").await, ["[]"]);
    assert_eq!(sees(borrowed, r#"{"name":"straight"}"#).await, ["straight true"]);
    assert_eq!(
        sees(borrowed, r#"{"name":"with \n escapes"}"#).await,
        ["with \n escapes false"]
    );
    assert_eq!(sees(text, r#""straight""#).await, ["straight"]);
}

#[subscriber("orders.*")]
async fn circumstances(_id: u64, context: Context<'_>, State(seen): State<Seen>) -> Result<(), &'static str> {
    let age = SystemTime::now()
        .duration_since(context.published_at().unwrap())
        .unwrap();
    assert!(age < Duration::from_mins(1));
    seen.add(format!(
        "{} {} {:?} {:?} {:?}",
        context.source(),
        context.attempt(),
        context.key().map(String::from_utf8_lossy),
        context.headers().get_str("region"),
        String::from_utf8_lossy(context.payload()),
    ));
    if context.attempt() == 1 { Err("once") } else { Ok(()) }
}

#[tokio::test(start_paused = true)]
async fn the_context_tells_source_attempt_key_headers_and_payload() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, circumstances, |_| {}).await;

    let headers: HeaderMap = [("region", "eu")].into_iter().collect();
    let message = Outgoing::new("orders.eu", b"7").with_headers(&headers).with_key(b"k");
    broker.publisher().publish(&[message]).await.unwrap();
    within(broker.idle("orders.*")).await;

    let tail = r#"Some("k") Some("eu") "7""#;
    assert_eq!(seen.all(), [format!("orders.* 1 {tail}"), format!("orders.* 2 {tail}")]);
    running.shutdown().await.unwrap();
}

/// A part of the transport's own: the name that a message was published to.
struct Destination(String);

impl<'a, S: Send + Sync> Extract<'a, S> for Destination {
    type Rejection = &'static str;

    async fn extract(call: Call<'a, S>) -> Result<Self, Self::Rejection> {
        let origin = call.incoming().fields::<Origin>().ok_or("not from memory")?;
        Ok(Self(origin.destination().to_owned()))
    }
}

#[subscriber("orders.*")]
async fn destined(_id: u64, Destination(name): Destination, State(seen): State<Seen>) {
    seen.add(name);
}

#[tokio::test(start_paused = true)]
async fn an_extractor_reaches_what_the_transport_lends() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, destined, |orders| {
        orders.source(Queue::new("orders.*"));
    })
    .await;

    publish_ids(&broker, "orders.eu", [1]).await;
    publish_ids(&broker, "orders.us", [2]).await;
    within(broker.idle("orders.*")).await;

    assert_eq!(seen.all(), ["orders.eu", "orders.us"]);
    running.shutdown().await.unwrap();
}

struct Sender(String);

impl<'a, S: Send + Sync> Extract<'a, S> for Sender {
    type Rejection = &'static str;

    async fn extract(call: Call<'a, S>) -> Result<Self, Self::Rejection> {
        let sender = call.incoming().headers().get_str("sender");
        tokio::task::yield_now().await;
        sender
            .map(|name| Self(name.to_owned()))
            .ok_or("the header `sender` is missing")
    }
}

/// Rejects by an outcome.
struct Wanted;

impl<'a, S: Send + Sync> Extract<'a, S> for Wanted {
    type Rejection = HandlerOutcome;

    async fn extract(call: Call<'a, S>) -> Result<Self, HandlerOutcome> {
        match call.incoming().headers().get_str("wanted") {
            Some("no") => Err(HandlerOutcome::drop()),
            _ => Ok(Self),
        }
    }
}

#[subscriber("orders")]
async fn signed(id: u64, _wanted: Wanted, Sender(sender): Sender, State(seen): State<Seen>) {
    seen.add(format!("{id} {sender}"));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_ends_the_call_as_an_error_or_as_the_outcome_that_it_is() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, signed, |orders| {
        orders.retry(Retry::fixed(Duration::from_secs(1)).attempts(2));
    })
    .await;

    let headers = |pairs: &[(&'static str, &'static str)]| pairs.iter().copied().collect::<HeaderMap>();
    publish_with(&broker, "orders", b"1", &headers(&[("sender", "anna")])).await;
    publish_with(&broker, "orders", b"2", &headers(&[])).await;
    publish_with(&broker, "orders", b"3", &headers(&[("wanted", "no")])).await;
    // Not even read, since it is rejected before.
    publish_with(&broker, "orders", b"{", &headers(&[("wanted", "no")])).await;
    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), ["1 anna"]);
    let dead = broker.dead_letters("orders");
    assert_eq!(
        (dead.len(), &dead[0].letter.error[..]),
        (1, "the header `sender` is missing")
    );
    assert_eq!(
        (dead[0].letter.reason, dead[0].letter.attempts),
        (DeadReason::AttemptsExhausted, 2)
    );
    assert_eq!(health(&running).dropped, 2);
    running.shutdown().await.unwrap();
}

#[derive(Clone)]
struct Shop {
    seen: Seen,
    limit: Arc<u64>,
}

struct Limit(Arc<u64>);

impl FromState<Shop> for Limit {
    fn from_state(shop: &Shop) -> Self {
        Self(shop.limit.clone())
    }
}

#[subscriber("orders")]
async fn limited(id: u64, State(Limit(limit)): State<Limit>, State(shop): State<Shop>, token: CancellationToken) {
    shop.seen.add(format!("{} {}", id > *limit, token.is_cancelled()));
}

#[tokio::test(start_paused = true)]
async fn state_is_taken_whole_or_in_parts() {
    let broker = MemoryBroker::new();
    let shop = Shop {
        seen: Seen::default(),
        limit: Arc::new(10),
    };
    let running = start_one(&broker, &shop, limited, |_| {}).await;

    publish_ids(&broker, "orders", [7, 70]).await;
    within(broker.idle("orders")).await;

    assert_eq!(shop.seen.all(), ["false false", "true false"]);
    running.shutdown().await.unwrap();
}

#[subscriber("orders")]
async fn batch(orders: &[Envelope<'_, u64>], State(seen): State<Seen>) {
    for order in orders {
        let place = order.headers().get_str("place").unwrap();
        seen.add(format!("{} {place} {}", order.message, order.attempt()));
    }
}

#[tokio::test(start_paused = true)]
async fn each_message_of_a_batch_comes_with_its_own_headers() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    for (payload, place) in [(b"1", "first"), (b"2", "second")] {
        let headers: HeaderMap = [("place", place)].into_iter().collect();
        publish_with(&broker, "orders", payload, &headers).await;
    }
    let running = start_one(&broker, &seen, batch, |orders| {
        orders.batch(2).batch_age(Duration::from_mins(1));
    })
    .await;
    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), ["1 first 1", "2 second 1"]);
    running.shutdown().await.unwrap();
}

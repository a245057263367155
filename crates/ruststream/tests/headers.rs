//! Headers as parameters of a handler: all as they are, or read into a type.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(dead_code, reason = "what a handler was given is shown by `Debug`")]

mod common;

use std::num::NonZeroU16;

use common::{Record, publish, publish_with, start_one, within};
use ruststream::prelude::*;
use ruststream::transport::DeadReason;

type Seen = Record<String>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Priority {
    High,
    Low,
}

#[derive(Debug, Deserialize)]
struct Tenant(String);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Origin<'a> {
    region: &'a str,
    schema_version: u32,
    sent_at: f64,
    test: Option<bool>,
    priority: Option<Priority>,
    tenant: Option<Tenant>,
    shards: Option<NonZeroU16>,
    #[serde(default)]
    signature: Option<&'a [u8]>,
}

#[subscriber("orders")]
async fn confirm(order: u64, Headers(origin): Headers<Origin<'_>>, State(seen): State<Seen>) {
    seen.add(format!("{order} {origin:?}"));
}

/// Headers that fit, and some that nobody asks for.
fn fitting() -> HeaderMap {
    let mut headers = HeaderMap::from_iter([("region", "eu"), ("schema-version", " 3 "), ("sent-at", "1.5")]);
    headers.append("region", "us");
    headers.append("trace", &b"\xff\x00"[..]);
    headers
}

async fn undecodable(broker: &MemoryBroker, headers: &HeaderMap) -> String {
    publish_with(broker, "orders", b"7", headers).await;
    within(broker.idle("orders")).await;
    let [dead] = &broker.take_dead_letters("orders")[..] else {
        panic!("there is not one dead letter");
    };
    assert_eq!((dead.letter.reason, dead.letter.attempts), (DeadReason::Undecodable, 1));
    dead.letter.error.clone()
}

#[tokio::test(start_paused = true)]
async fn headers_are_read_into_a_type() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, confirm, |_| {}).await;

    publish_with(&broker, "orders", b"7", &fitting()).await;
    let mut headers = fitting();
    headers.extend([
        ("test", "true"),
        ("priority", "low"),
        ("tenant", "a b"),
        ("shards", "8"),
    ]);
    headers.append("signature", &b"\xff"[..]);
    publish_with(&broker, "orders", b"8", &headers).await;

    let start = "Origin { region: \"eu\", schema_version: 3, sent_at: 1.5";
    let seen = seen.reaches(2).await;
    let nothing = "test: None, priority: None, tenant: None, shards: None, signature: None }";
    assert_eq!(seen[0], format!("7 {start}, {nothing}"));
    let all = "test: Some(true), priority: Some(Low), tenant: Some(Tenant(\"a b\")), shards: Some(8), signature: Some([255]) }";
    assert_eq!(seen[1], format!("8 {start}, {all}"));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn headers_that_do_not_fit_make_a_message_undecodable_and_are_named() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, confirm, |_| {}).await;

    let mut missing = fitting();
    missing.remove("schema-version");
    let error = undecodable(&broker, &missing).await;
    assert_eq!(error, "the headers do not fit: `schema-version` is missing");

    for (name, value, why) in [
        ("schema-version", &b"three"[..], "\"three\" is no u32"),
        ("schema-version", b"-1", "\"-1\" is no u32"),
        ("region", b"\xff", "not text"),
        ("test", b"yes", "\"yes\" is no bool"),
        ("priority", b"urgent", "unknown variant `urgent`"),
        ("shards", b"0", "nonzero"),
    ] {
        let mut headers = fitting();
        headers.insert(name, value);
        let error = undecodable(&broker, &headers).await;
        assert!(error.contains(&format!("`{name}`")) && error.contains(why), "{error}");
    }
    assert_eq!(seen.len(), 0);
    running.shutdown().await.unwrap();
}

#[subscriber("orders")]
async fn list(order: u64, headers: &HeaderMap, State(seen): State<Seen>) {
    seen.add(format!("{order} {headers:?}"));
}

#[tokio::test(start_paused = true)]
async fn all_headers_are_given_as_they_are() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, list, |_| {}).await;

    publish(&broker, "orders", ["7"]).await;
    publish_with(&broker, "orders", b"8", &HeaderMap::from_iter([("a", "1"), ("a", "2")])).await;

    assert_eq!(seen.reaches(2).await, ["7 {}", "8 {\"a\": \"1\", \"a\": \"2\"}"]);
    running.shutdown().await.unwrap();
}

#[derive(Debug, Deserialize)]
struct Everything {
    region: String,
    #[serde(flatten)]
    rest: std::collections::BTreeMap<String, String>,
}

#[subscriber("orders")]
async fn flat(_order: u64, Headers(Everything { region, rest }): Headers<Everything>, State(seen): State<Seen>) {
    seen.add(format!("{region} {rest:?}"));
}

#[tokio::test(start_paused = true)]
async fn headers_that_have_no_field_gather_in_a_flattened_map() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, flat, |_| {}).await;

    publish_with(
        &broker,
        "orders",
        b"7",
        &HeaderMap::from_iter([("region", "eu"), ("b", "2"), ("a", "1")]),
    )
    .await;

    assert_eq!(seen.reaches(1).await, ["eu {\"a\": \"1\", \"b\": \"2\"}"]);
    running.shutdown().await.unwrap();
}

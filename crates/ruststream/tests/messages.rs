//! What the message of a handler can be: borrowed, raw, of several types, in a format of its own, checked by its own rules.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(dead_code, reason = "what a handler was given is shown by `Debug`")]

mod common;

use std::borrow::Cow;

use common::{Record, publish, publish_with, start_one, within};
use ruststream::codec::{Codec, CodecError, Encode};
use ruststream::handler::Message;
use ruststream::message::{Incoming, header};
use ruststream::prelude::*;
use ruststream::transport::DeadReason;

type Seen = Record<String>;

fn headers<const N: usize>(pairs: [(&'static str, &'static str); N]) -> HeaderMap {
    pairs.into_iter().collect()
}

/// Why the only dead letter of `name` cannot be decoded.
async fn undecodable(broker: &MemoryBroker, name: &str) -> String {
    within(broker.idle(name)).await;
    let [dead] = &broker.take_dead_letters(name)[..] else {
        panic!("there is not one dead letter in {name}");
    };
    assert_eq!((dead.letter.reason, dead.letter.attempts), (DeadReason::Undecodable, 1));
    dead.letter.error.clone()
}

#[derive(Debug, Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    name: &'a str,
    #[serde(borrow)]
    note: Cow<'a, str>,
    #[serde(borrow)]
    tags: Vec<&'a str>,
}

#[subscriber("events")]
async fn take_event(event: Event<'_>, context: Context<'_>, State(seen): State<Seen>) {
    let payload = context.payload().as_ptr_range();
    assert!(payload.contains(&event.name.as_ptr()) && payload.contains(&event.tags[0].as_ptr()));
    seen.add(format!("{} {} {:?}", event.name, event.note, event.tags));
}

#[tokio::test(start_paused = true)]
async fn a_message_borrows_from_the_payload() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, take_event, |_| {}).await;

    publish(&broker, "events", [r#"{"name":"a","note":"b\n","tags":["c"]}"#]).await;
    assert_eq!(seen.reaches(1).await, ["a b\n [\"c\"]"]);

    publish(&broker, "events", [r#"{"name":"a\n","note":"b","tags":[]}"#]).await;
    let error = undecodable(&broker, "events").await;
    assert!(error.contains("expected a borrowed string"), "{error}");
    running.shutdown().await.unwrap();
}

#[subscriber("lists")]
async fn take_list(list: Vec<u64>, State(seen): State<Seen>) {
    seen.add(format!("{list:?}"));
}

#[subscriber("payloads")]
async fn take_bytes(payload: &[u8], State(seen): State<Seen>) {
    seen.add(format!("{payload:?}"));
}

#[tokio::test(start_paused = true)]
async fn a_list_is_one_message_and_bytes_are_given_as_they_came() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = RustStream::new(AppInfo::new("test", "1.0.0"))
        .state(seen.clone())
        .with_broker(broker.clone(), |broker| {
            broker.include(take_list);
            broker.include(take_bytes);
        })
        .start()
        .await
        .unwrap();

    running.publisher().publish("lists", &[1u64, 2]).await.unwrap();
    seen.reaches(1).await;
    publish_with(&broker, "payloads", b"\xff{", &headers([("content-type", "x/y")])).await;

    assert_eq!(seen.reaches(2).await, ["[1, 2]", "[255, 123]"]);
    running.shutdown().await.unwrap();
}

#[derive(Debug, Serialize, Deserialize)]
struct Placed {
    id: u64,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ByContent {
    Placed(Placed),
    Cancelled {
        reason: String,
    },
    #[serde(other)]
    Other,
}

#[subscriber("by-content")]
async fn by_content(event: ByContent, State(seen): State<Seen>) {
    seen.add(format!("{event:?}"));
}

#[tokio::test(start_paused = true)]
async fn several_types_are_told_apart_by_their_content() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, by_content, |_| {}).await;

    publish(
        &broker,
        "by-content",
        [
            r#"{"kind":"placed","id":7}"#,
            r#"{"reason":"late","kind":"cancelled"}"#,
            r#"{"kind":"paid","cents":5}"#,
        ],
    )
    .await;

    let expected = ["Placed(Placed { id: 7 })", "Cancelled { reason: \"late\" }", "Other"];
    assert_eq!(seen.reaches(3).await, expected);
    running.shutdown().await.unwrap();
}

#[derive(Debug, Message)]
#[message(header = "kind")]
enum ByHeader<'a> {
    #[message("order.placed")]
    Placed(Placed),
    #[message("order.noted")]
    Noted(Note<'a>),
    Emptied,
}

#[derive(Debug, Deserialize)]
struct Note<'a>(#[serde(borrow)] &'a str);

#[subscriber("by-header")]
async fn by_header(event: ByHeader<'_>, State(seen): State<Seen>) {
    seen.add(format!("{event:?}"));
}

#[tokio::test(start_paused = true)]
async fn several_types_are_told_apart_by_a_header() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, by_header, |_| {}).await;

    let publisher = running.publisher();
    publisher
        .publish("by-header", &Placed { id: 7 })
        .header("kind", "order.placed")
        .await
        .unwrap();
    publisher
        .publish("by-header", "lent")
        .header("kind", "order.noted")
        .await
        .unwrap();
    publisher
        .publish_bytes("by-header", "")
        .header("kind", "Emptied")
        .await
        .unwrap();
    let expected = ["Placed(Placed { id: 7 })", "Noted(Note(\"lent\"))", "Emptied"];
    assert_eq!(seen.reaches(3).await, expected);

    publish(&broker, "by-header", ["{}"]).await;
    let error = undecodable(&broker, "by-header").await;
    assert_eq!(
        error,
        "the header `kind`, which says which ByHeader a message is, is missing"
    );

    publish_with(&broker, "by-header", b"{}", &headers([("kind", "order.paid")])).await;
    let error = undecodable(&broker, "by-header").await;
    assert!(error.contains("\"order.paid\""), "{error}");
    assert!(error.ends_with("known: order.placed, order.noted, Emptied"), "{error}");

    publish_with(&broker, "by-header", b"{}", &headers([("kind", "order.placed")])).await;
    let error = undecodable(&broker, "by-header").await;
    assert!(error.contains("missing field `id`"), "{error}");
    running.shutdown().await.unwrap();
}

#[derive(Debug, Message)]
#[message(header = "kind")]
enum WithRest<T> {
    Known(T),
    #[message(other)]
    Rest(Cow<'static, str>),
}

#[subscriber("with-rest")]
async fn with_rest(events: &[WithRest<u64>], State(seen): State<Seen>) {
    seen.add(format!("{events:?}"));
}

#[tokio::test(start_paused = true)]
async fn a_variant_takes_all_other_messages_also_in_a_batch() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    publish_with(&broker, "with-rest", b"1", &headers([("kind", "Known")])).await;
    publish_with(&broker, "with-rest", b"\"a\"", &headers([("kind", "unknown")])).await;
    publish(&broker, "with-rest", ["\"b\"", "2"]).await;
    let running = start_one(&broker, &seen, with_rest, |_| {}).await;

    assert_eq!(seen.reaches(1).await, ["[Known(1), Rest(\"a\"), Rest(\"b\")]"]);
    let error = undecodable(&broker, "with-rest").await;
    assert!(error.contains("expected a string"), "{error}");
    running.shutdown().await.unwrap();
}

/// A format of one's own: two bytes.
#[derive(Debug, Clone, Copy)]
struct Reading(u16);

impl<'a> Message<'a> for Reading {
    fn read(incoming: Incoming<'a>, _: &Codec) -> Result<Self, CodecError> {
        match *incoming.payload() {
            [high, low] => Ok(Self(u16::from_be_bytes([high, low]))),
            ref other => Err(CodecError::new(format!("a reading has 2 bytes, not {}", other.len()))),
        }
    }
}

impl Encode for Reading {
    fn encode(&self, _: &Codec, headers: &mut HeaderMap, payload: &mut Vec<u8>) -> Result<(), CodecError> {
        if self.0 == u16::MAX {
            return Err(CodecError::new("the sensor is off"));
        }
        headers.insert(header::CONTENT_TYPE, "application/vnd.reading");
        payload.extend_from_slice(&self.0.to_be_bytes());
        Ok(())
    }
}

#[subscriber("readings", reply = "doubled")]
async fn double(Reading(value): Reading, out: Out<Reading>, State(seen): State<Seen>) -> Result<Reading, String> {
    let failed = out.publish("halved", &Reading(u16::MAX)).await.unwrap_err();
    seen.add(failed.to_string());
    out.publish("halved", &Reading(value / 2))
        .await
        .map_err(|error| error.to_string())?;
    Ok(Reading(value * 2))
}

#[tokio::test(start_paused = true)]
async fn a_type_reads_and_writes_itself() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, double, |_| {}).await;

    running.publisher().publish("readings", &Reading(258)).await.unwrap();
    within(broker.idle("readings")).await;

    for (name, payload) in [("doubled", [2, 4]), ("halved", [0, 129])] {
        let published = &broker.published(name)[0];
        assert_eq!(published.payload[..], payload, "{name}");
        assert_eq!(
            published.headers.get_str("content-type"),
            Some("application/vnd.reading")
        );
    }
    assert!(seen.all()[0].contains("the sensor is off"), "{:?}", seen.all());

    publish(&broker, "readings", ["abc"]).await;
    assert_eq!(undecodable(&broker, "readings").await, "a reading has 2 bytes, not 3");
    running.shutdown().await.unwrap();
}

#[cfg(feature = "prost")]
mod protobuf {
    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Order {
        #[prost(uint64, tag = "1")]
        id: u64,
        #[prost(string, tag = "2")]
        note: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Receipt {
        #[prost(uint64, tag = "1")]
        order: u64,
    }

    #[subscriber("orders", reply = "receipts")]
    async fn confirm(Proto(order): Proto<Order>, copies: Out<Proto<Order>>) -> Result<Proto<Receipt>, String> {
        let receipt = Receipt { order: order.id };
        copies
            .publish("copies", &Proto(order))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Proto(receipt))
    }

    #[tokio::test(start_paused = true)]
    async fn a_protobuf_message_is_taken_answered_and_published() {
        let (broker, seen) = (MemoryBroker::new(), Seen::default());
        let running = start_one(&broker, &seen, confirm, |_| {}).await;

        let order = Proto(Order {
            id: 7,
            note: "a".to_owned(),
        });
        running.publisher().publish("orders", &order).await.unwrap();
        publish(&broker, "orders", [b"\x08\x08"]).await;
        publish_with(
            &broker,
            "orders",
            b"\x08\x09",
            &headers([("content-type", "application/Protobuf; v=3")]),
        )
        .await;
        within(broker.idle("orders")).await;

        let receipts = broker.published("receipts");
        let payloads: Vec<_> = receipts.iter().map(|receipt| &receipt.payload[..]).collect();
        assert_eq!(payloads, [b"\x08\x07", b"\x08\x08", b"\x08\x09"]);
        let copy = &broker.published("copies")[0];
        assert_eq!(copy.payload[..], *b"\x08\x07\x12\x01a");
        for published in [&receipts[0].headers, &copy.headers] {
            assert_eq!(published.get_str("content-type"), Some("application/x-protobuf"));
        }
        running.shutdown().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_protobuf_is_undecodable() {
        let (broker, seen) = (MemoryBroker::new(), Seen::default());
        let running = start_one(&broker, &seen, confirm, |_| {}).await;

        for (payload, content_type, part) in [
            (&b"\x08"[..], "application/x-protobuf", "Order in protobuf"),
            (b"{}", "application/json", "\"application/json\" is not protobuf"),
        ] {
            publish_with(&broker, "orders", payload, &headers([("content-type", content_type)])).await;
            let error = undecodable(&broker, "orders").await;
            assert!(error.contains(part), "{error}");
        }
        running.shutdown().await.unwrap();
    }
}

#[cfg(feature = "garde")]
mod validation {
    use garde::Validate;

    use super::*;

    #[derive(Debug, Deserialize, Validate)]
    struct Order {
        #[garde(range(min = 1))]
        cents: i64,
        #[garde(dive)]
        lines: Vec<Line>,
    }

    #[derive(Debug, Deserialize, Validate)]
    struct Line {
        #[garde(length(min = 1))]
        sku: String,
    }

    #[subscriber("orders")]
    async fn confirm(Valid(order): Valid<Order>, State(seen): State<Seen>) {
        seen.add(format!("{} {}", order.cents, order.lines[0].sku));
    }

    #[subscriber("batches")]
    async fn confirm_all(orders: &[Valid<Order>], State(seen): State<Seen>) {
        let cents: Vec<_> = orders.iter().map(|order| order.cents).collect();
        seen.add(format!("{cents:?}"));
    }

    const GOOD: &str = r#"{"cents":5,"lines":[{"sku":"a"}]}"#;
    const BAD: &str = r#"{"cents":0,"lines":[{"sku":"a"},{"sku":""}]}"#;

    #[tokio::test(start_paused = true)]
    async fn a_message_that_breaks_its_rules_is_undecodable_and_the_fields_are_named() {
        let (broker, seen) = (MemoryBroker::new(), Seen::default());
        let running = start_one(&broker, &seen, confirm, |_| {}).await;

        publish(&broker, "orders", [GOOD, BAD]).await;
        let error = undecodable(&broker, "orders").await;

        assert_eq!(seen.all(), ["5 a"]);
        for part in ["validation::Order", "`cents`: ", "`lines[1].sku`: "] {
            assert!(error.contains(part), "{error}");
        }
        publish(&broker, "orders", ["{}"]).await;
        let error = undecodable(&broker, "orders").await;
        assert!(error.contains("missing field `cents`"), "{error}");
        running.shutdown().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_batch_the_message_alone_is_undecodable() {
        let (broker, seen) = (MemoryBroker::new(), Seen::default());
        publish(&broker, "batches", [GOOD, BAD, GOOD]).await;
        let running = start_one(&broker, &seen, confirm_all, |_| {}).await;

        assert_eq!(seen.reaches(1).await, ["[5, 5]"]);
        undecodable(&broker, "batches").await;
        running.shutdown().await.unwrap();
    }
}

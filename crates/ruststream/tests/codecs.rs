//! Codecs: where they are chosen, what is written, and what is read.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;

use common::{Record, publish, publish_with, start_one, within};
use ruststream::codec::Codec;
use ruststream::message::header;
use ruststream::prelude::*;
use ruststream::transport::{DeadReason, PublishError};
use serde::de::DeserializeOwned;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    note: String,
}

fn order(id: u64) -> Order {
    Order {
        id,
        note: format!("order \"{id}\""),
    }
}

type Seen = Record<Order>;

#[subscriber("orders", reply = "receipts")]
async fn confirm(order: Order, State(seen): State<Seen>) -> Order {
    seen.add(order.clone());
    order
}

/// Every codec that is compiled in and takes structs.
fn codecs() -> Vec<Codec> {
    vec![
        Codec::Json,
        #[cfg(feature = "messagepack")]
        Codec::MessagePack,
        #[cfg(feature = "cbor")]
        Codec::Cbor,
        #[cfg(feature = "own-codec")]
        Codec::own(own::Backwards),
    ]
}

fn encoded<T: Serialize>(codec: &Codec, value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec.encode(value, &mut bytes).unwrap();
    bytes
}

fn typed(content_type: impl AsRef<[u8]>) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.as_ref().to_vec())])
}

/// What each message in `name` says it is.
fn content_types(broker: &MemoryBroker, name: &str) -> Vec<String> {
    let published = broker.published(name);
    let content_type = |headers: &HeaderMap| headers.get_str(header::CONTENT_TYPE).unwrap_or("none").to_owned();
    published.iter().map(|message| content_type(&message.headers)).collect()
}

/// Why the only dead letter of `name` cannot be decoded.
async fn undecodable(broker: &MemoryBroker, name: &str) -> String {
    within(broker.idle(name)).await;
    let [dead] = &broker.take_dead_letters(name)[..] else {
        panic!("there is not one dead letter in {name}");
    };
    assert_eq!(dead.letter.reason, DeadReason::Undecodable);
    dead.letter.error.clone()
}

#[tokio::test(start_paused = true)]
async fn the_codec_of_the_app_reads_and_writes() {
    for codec in codecs() {
        let (broker, seen) = (MemoryBroker::new(), Seen::default());
        let running = RustStream::new(AppInfo::new("test", "1.0.0"))
            .state(seen.clone())
            .with_broker(broker.clone(), |broker| {
                broker.include(confirm);
            })
            .codec(codec.clone())
            .start()
            .await
            .unwrap();

        publish(&broker, "orders", [encoded(&codec, &order(1))]).await;
        running.publisher().publish("orders", &order(2)).await.unwrap();

        assert_eq!(seen.reaches(2).await, [order(1), order(2)]);
        within(broker.idle("orders")).await;
        assert_eq!(content_types(&broker, "receipts"), [codec.content_type(); 2]);
        let reply = &broker.published("receipts")[1];
        assert_eq!(codec.decode::<Order>(&reply.payload).unwrap(), order(2));
        running.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_read_as_its_content_type_says() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, confirm, |_| {}).await;

    let built_in = codecs()
        .into_iter()
        .filter(|codec| !codec.content_type().contains("backwards"));
    let mut count = 0;
    for codec in built_in {
        running
            .publisher()
            .with_codec(codec)
            .publish("orders", &order(7))
            .await
            .unwrap();
        count += 1;
    }

    assert_eq!(seen.reaches(count).await, vec![order(7); count]);
    within(broker.idle("orders")).await;
    assert_eq!(content_types(&broker, "receipts"), vec!["application/json"; count]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn parameters_case_and_suffix_of_a_content_type_do_not_matter() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, confirm, |_| {}).await;

    let mut count = 0;
    for (codec, content_type) in [
        (Codec::Json, "Application/JSON; charset=utf-8"),
        (Codec::Json, "application/cloudevents+json"),
        (Codec::Json, "text/json"),
        #[cfg(feature = "messagepack")]
        (Codec::MessagePack, "application/vnd.msgpack"),
        #[cfg(feature = "messagepack")]
        (Codec::MessagePack, "APPLICATION/X-MSGPACK"),
        #[cfg(feature = "cbor")]
        (Codec::Cbor, "application/senml+cbor;v=1"),
    ] {
        publish_with(&broker, "orders", &encoded(&codec, &order(7)), &typed(content_type)).await;
        count += 1;
    }

    assert_eq!(seen.reaches(count).await, vec![order(7); count]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unknown_content_type_is_undecodable_and_the_known_ones_are_named() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, confirm, |_| {}).await;

    for content_type in [
        &b"application/x-unknown"[..],
        b"",
        b"\xff\xfe",
        b"json",
        b"application/jsonx",
    ] {
        publish_with(
            &broker,
            "orders",
            &encoded(&Codec::Json, &order(7)),
            &typed(content_type),
        )
        .await;
        let error = undecodable(&broker, "orders").await;
        assert!(error.contains("known: application/"), "{error}");
        for codec in codecs()
            .iter()
            .filter(|codec| !codec.content_type().contains("backwards"))
        {
            assert!(error.contains(codec.content_type()), "{error}");
        }
    }
    assert_eq!(seen.len(), 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_codec_that_is_switched_off_is_undecodable_and_its_feature_is_named() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, confirm, |_| {}).await;

    for (content_type, fix, off) in [
        (
            "application/msgpack",
            "feature `messagepack`",
            cfg!(not(feature = "messagepack")),
        ),
        ("application/cbor", "feature `cbor`", cfg!(not(feature = "cbor"))),
        (
            "application/x-protobuf",
            "feature `prost`",
            cfg!(not(feature = "prost")),
        ),
        ("application/protobuf", "take the message as `Proto<T>`", true),
    ] {
        if off {
            publish_with(&broker, "orders", b"\x08\x07", &typed(content_type)).await;
            let error = undecodable(&broker, "orders").await;
            assert!(error.contains(fix), "{error}");
        }
    }
    running.shutdown().await.unwrap();
}

#[subscriber("near")]
async fn near(order: Order, State(seen): State<Seen>, out: Out<Order>) -> Result<(), PublishError> {
    out.publish("sent", &order).await?;
    out.with_codec(Codec::Json).publish("sent", &order).await?;
    seen.add(order);
    Ok(())
}

/// The narrower choice holds: of a publisher before a subscription, a scope, an outer scope and the app.
#[cfg(all(feature = "messagepack", feature = "cbor"))]
#[tokio::test(start_paused = true)]
async fn the_narrower_choice_of_a_codec_holds() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = RustStream::new(AppInfo::new("test", "1.0.0"))
        .state(seen.clone())
        .codec(Codec::MessagePack)
        .with_broker(broker.clone(), |broker| {
            broker.include(confirm);
            broker.codec(Codec::Json, |broker| {
                broker.prefix("a.", |broker| {
                    broker.include(confirm);
                });
                broker.codec(Codec::Cbor, |broker| {
                    broker.prefix("b.", |broker| {
                        broker.include(confirm);
                    });
                    broker.include(near).codec(Codec::MessagePack);
                });
            });
        })
        .start()
        .await
        .unwrap();

    for (name, codec) in [
        ("orders", Codec::MessagePack),
        ("a.orders", Codec::Json),
        ("b.orders", Codec::Cbor),
        ("near", Codec::MessagePack),
    ] {
        publish(&broker, name, [encoded(&codec, &order(7))]).await;
        within(broker.idle(name)).await;
        assert!(broker.dead_letters(name).is_empty(), "{name}");
    }

    assert_eq!(seen.all(), vec![order(7); 4]);
    assert_eq!(
        content_types(&broker, "receipts"),
        ["application/msgpack", "application/json", "application/cbor"]
    );
    assert_eq!(
        content_types(&broker, "sent"),
        ["application/msgpack", "application/json"]
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_is_cut_short_or_too_long_is_undecodable() {
    for codec in codecs() {
        let (broker, seen) = (MemoryBroker::new(), Seen::default());
        let running = start_one(&broker, &seen, confirm, |orders| {
            orders.codec(codec.clone());
        })
        .await;
        let whole = encoded(&codec, &order(7));

        for payload in [&whole[..whole.len() - 1], &[&whole[..], &whole[..1]].concat(), b""] {
            publish(&broker, "orders", [payload]).await;
            let error = undecodable(&broker, "orders").await;
            assert!(error.contains("codecs::Order"), "{codec:?}: {error}");
        }
        assert_eq!(seen.len(), 0);
        running.shutdown().await.unwrap();
    }
}

#[test]
fn json_is_utf_8_also_where_nobody_looks() {
    let error = Codec::Json
        .decode::<Order>(b"{\"id\":7,\"note\":\"\",\"x\":\"\xff\"}")
        .unwrap_err();
    assert!(error.to_string().contains("invalid utf-8"), "{error}");
}

/// Nests itself as deep as the payload.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Nest {
    Inner(Vec<Nest>),
    End(u8),
}

#[test]
fn no_payload_can_use_up_the_stack() {
    let deep = 1_000_000;
    let payloads = [
        (Codec::Json, vec![b'['; deep]),
        #[cfg(feature = "messagepack")]
        (Codec::MessagePack, vec![0x91; deep]),
        #[cfg(feature = "cbor")]
        (Codec::Cbor, vec![0x81; deep]),
    ];
    for (codec, payload) in payloads {
        assert!(codec.decode::<Nest>(&payload).is_err(), "{codec:?}");
        assert!(codec.decode::<serde::de::IgnoredAny>(&payload).is_err(), "{codec:?}");
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Newtype(u32);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Kind {
    Unit,
    Newtype(u8),
    Tuple(u8, String),
    Struct { x: i32 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Tagged {
    Placed { id: u64 },
    Cancelled(Order),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    Empty,
    Full(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Everything {
    numbers: (u8, i8, u16, i16, u32, i32, u64, i64, f32, f64),
    truth: bool,
    letter: char,
    text: String,
    some: Option<u8>,
    none: Option<u8>,
    list: Vec<Option<String>>,
    map: BTreeMap<String, Vec<i64>>,
    unit: Unit,
    nothing: (),
    newtype: Newtype,
    kinds: Vec<Kind>,
    tagged: Vec<Tagged>,
    adjacent: Vec<Adjacent>,
    result: Result<u8, String>,
    address: std::net::IpAddr,
    took: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<u8>,
    #[serde(flatten)]
    flat: BTreeMap<String, u32>,
}

#[test]
fn every_codec_takes_all_that_serde_derives() {
    let everything = Everything {
        numbers: (
            u8::MAX,
            i8::MIN,
            u16::MAX,
            i16::MIN,
            u32::MAX,
            i32::MIN,
            u64::MAX,
            i64::MIN,
            0.1,
            1e300,
        ),
        truth: true,
        letter: 'é',
        text: "a \"quoted\" text,\nwith 🦀".to_owned(),
        some: Some(0),
        none: None,
        list: vec![None, Some(String::new())],
        map: BTreeMap::from([("a".to_owned(), vec![-1, 1 << 40])]),
        unit: Unit,
        nothing: (),
        newtype: Newtype(7),
        kinds: vec![
            Kind::Unit,
            Kind::Newtype(1),
            Kind::Tuple(2, "b".to_owned()),
            Kind::Struct { x: -3 },
        ],
        tagged: vec![Tagged::Placed { id: 1 }, Tagged::Cancelled(order(2))],
        adjacent: vec![Adjacent::Empty, Adjacent::Full(vec![1, 2])],
        result: Err("no".to_owned()),
        address: "::1".parse().unwrap(),
        took: Duration::from_millis(1500),
        left_out: None,
        flat: BTreeMap::from([("further".to_owned(), 1)]),
    };
    for codec in codecs() {
        let bytes = encoded(&codec, &everything);
        let decoded: Everything = codec
            .decode(&bytes)
            .unwrap_or_else(|error| panic!("{codec:?}: {error}"));
        assert_eq!(decoded, everything, "{codec:?}");
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Lent<'a> {
    #[serde(borrow)]
    text: &'a str,
}

#[test]
fn every_codec_lends_texts_from_the_payload() {
    for codec in codecs()
        .iter()
        .filter(|codec| !codec.content_type().contains("backwards"))
    {
        let bytes = encoded(codec, &Lent { text: "lent" });
        let lent: Lent<'_> = codec.decode(&bytes).unwrap();
        assert!(bytes.as_ptr_range().contains(&lent.text.as_ptr()), "{codec:?}");
    }
}

fn raw<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: &T, bytes: &[u8]) {
    assert_eq!(encoded(&Codec::Raw, value), bytes);
    assert_eq!(&Codec::Raw.decode::<T>(bytes).unwrap(), value);
}

#[test]
fn raw_takes_texts_and_bytes_and_refuses_what_needs_a_format() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Name(String);

    raw(&"a \"text\"".to_owned(), b"a \"text\"");
    raw(&vec![0u8, 255], b"\x00\xff");
    raw(&[1u8, 2], b"\x01\x02");
    raw(&Name("ada".to_owned()), b"ada");
    assert_eq!(Codec::Raw.decode::<&str>(b"lent").unwrap(), "lent");
    assert_eq!(Codec::Raw.decode::<&[u8]>(b"lent").unwrap(), b"lent");

    let refused = |error: ruststream::codec::CodecError, part: &str| {
        let error = error.to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(
        Codec::Raw.encode(&7, &mut Vec::new()).unwrap_err(),
        "a number needs a format",
    );
    refused(
        Codec::Raw.encode(&["a"], &mut Vec::new()).unwrap_err(),
        "a sequence of anything but bytes",
    );
    refused(
        Codec::Raw.encode(&order(7), &mut Vec::new()).unwrap_err(),
        "a struct needs a format",
    );
    refused(Codec::Raw.decode::<Order>(b"{}").unwrap_err(), "expected struct Order");
    refused(Codec::Raw.decode::<String>(b"\xff").unwrap_err(), "utf-8");
    refused(Codec::Raw.decode::<[u8; 3]>(b"ab").unwrap_err(), "invalid length 2");
}

#[subscriber("texts")]
async fn text(text: String, State(seen): State<Record<String>>) {
    seen.add(text);
}

#[tokio::test(start_paused = true)]
async fn a_plain_text_is_read_as_it_is() {
    let (broker, seen) = (MemoryBroker::new(), Record::<String>::default());
    let running = start_one(&broker, &seen, text, |texts| {
        texts.codec(Codec::Raw);
    })
    .await;

    publish(&broker, "texts", ["21.5"]).await;
    publish_with(&broker, "texts", b"22.5", &typed("text/plain; charset=utf-8")).await;
    publish_with(&broker, "texts", b"\"23.5\"", &typed("application/json")).await;

    assert_eq!(seen.reaches(3).await, ["21.5", "22.5", "23.5"]);
    running.shutdown().await.unwrap();
}

#[cfg(feature = "own-codec")]
mod own {
    use ruststream::codec::{CodecError, Given, OwnCodec, Wanted};

    use super::*;

    /// JSON from behind.
    #[derive(Debug)]
    pub(super) struct Backwards;

    impl OwnCodec for Backwards {
        fn content_type(&self) -> &'static str {
            "application/vnd.backwards"
        }

        fn decode<'a>(&self, bytes: &'a [u8], wanted: Wanted<'_, 'a>) -> Result<(), CodecError> {
            let mut bytes = bytes.to_vec();
            bytes.reverse();
            let mut json = serde_json::Deserializer::from_reader(&bytes[..]);
            wanted.read(&mut json)?;
            json.end()
                .map_err(|error| CodecError::new(error.to_string()).with_cause(error))
        }

        fn encode(&self, given: Given<'_>, into: &mut Vec<u8>) -> Result<(), CodecError> {
            let start = into.len();
            serde_json::to_writer(&mut *into, &given)
                .map_err(|error| CodecError::new(error.to_string()).with_cause(error))?;
            into[start..].reverse();
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_by_a_codec_of_ones_own_is_read_by_it_and_built_in_ones_are_read_beside_it() {
        let (broker, seen) = (MemoryBroker::new(), Seen::default());
        let running = start_one(&broker, &seen, confirm, |orders| {
            orders.codec(Codec::own(Backwards));
        })
        .await;

        let publisher = running.publisher();
        publisher
            .with_codec(Codec::own(Backwards))
            .publish("orders", &order(1))
            .await
            .unwrap();
        publisher.publish("orders", &order(2)).await.unwrap();
        let typed = typed("application/vnd.Backwards; v=1");
        publish_with(&broker, "orders", &encoded(&Codec::own(Backwards), &order(3)), &typed).await;

        assert_eq!(seen.reaches(3).await, [order(1), order(2), order(3)]);
        within(broker.idle("orders")).await;
        assert_eq!(content_types(&broker, "receipts"), ["application/vnd.backwards"; 3]);
        running.shutdown().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_codec_of_ones_own_refuses_is_undecodable_and_it_is_named_where_it_is_known() {
        let (broker, seen) = (MemoryBroker::new(), Seen::default());
        let running = start_one(&broker, &seen, confirm, |orders| {
            orders.codec(Codec::own(Backwards));
        })
        .await;

        publish(&broker, "orders", [r#"}"x":1{"#]).await;
        let error = undecodable(&broker, "orders").await;
        assert!(error.contains("application/vnd.backwards"), "{error}");
        publish_with(&broker, "orders", b"", &super::typed("x/y")).await;
        let error = undecodable(&broker, "orders").await;
        assert!(error.contains("application/vnd.backwards"), "{error}");
        running.shutdown().await.unwrap();
    }
}

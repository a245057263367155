//! Payloads travel compressed.
#![cfg(all(feature = "gzip", feature = "zstd"))]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use bytes::Bytes;
use common::{Record, batch_handler, handler, publish_with, start, within};
use ruststream::app::BrokerScope;
use ruststream::layer::{ClaimCheck, Compressed, PayloadStore};
use ruststream::message::{HeaderMap, header};
use ruststream::prelude::*;
use ruststream::transport::{DeadReason, TransportError};

/// Written by Python's `gzip`, with a file name in the header.
const BY_PYTHON: &str = "1f8b08080100000002ff6f726465722e6a736f6e00534acc53c82f4a492d52c84f5348cccb2fc900320b8af2d38b12739500446aa66\
                         11d000000";
/// Written by the program `zstd`, level 22.
const BY_ZSTD: &str = "28b52ffd0488e9000022616e206f72646572206f6620616e6f746865722070726f6772616d2204ef203f";

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

fn encoded(name: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_ENCODING, name)])
}

/// Notes the text of each message on `single`, and of those on `bundles`, under this layer.
fn mount(layer: Compressed, seen: &Record<String>) -> impl FnOnce(&mut BrokerScope<'_, MemoryBroker, ()>) {
    let seen = seen.clone();
    move |scope| {
        scope.publish_layer(layer);
        scope.layer(layer, |scope| {
            let one = seen.clone();
            scope.include(handler("single", move |given| {
                one.add(given.text);
                async {}
            }));
            let bundles = batch_handler("bundles", move |given| {
                for one in given {
                    seen.add(one.text);
                }
                async {}
            });
            scope.include(bundles).batch(4);
        });
    }
}

/// Letters without a pattern, the same each time.
fn noise(length: usize) -> String {
    let mut state = 1u64;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b' ' + (state >> 33) as u8 % 90)
    };
    (0..length).map(letter).collect()
}

#[tokio::test]
async fn payloads_of_any_size_come_out_as_they_went_in() {
    const PIECE: usize = 64 * 1024;
    for (layer, name) in [(Compressed::gzip(), "gzip"), (Compressed::zstd(), "zstd")] {
        let (broker, seen) = (MemoryBroker::new(), Record::default());
        let running = start(broker.clone(), mount(layer, &seen)).await;
        let sizes = [0, 1, 1024, 1025, PIECE - 1, PIECE, PIECE + 1, 150_001];
        let payloads = sizes.iter().flat_map(|&size| ["x".repeat(size), noise(size)]);
        let payloads: Vec<_> = payloads.collect();

        for payload in &payloads {
            for queue in ["single", "bundles"] {
                let sent = running.publisher().publish_bytes(queue, payload.clone());
                sent.await.unwrap();
                within(broker.idle(queue)).await;
            }
        }

        let twice: Vec<_> = payloads.iter().flat_map(|one| [one, one]).collect();
        assert!(seen.all().iter().eq(twice), "{name} changes what passes it");
        for sent in broker.published("single") {
            let compressed = sent.headers.get_str(header::CONTENT_ENCODING);
            assert!(compressed.is_none_or(|written| written == name));
            assert!(sent.payload.len() <= 1024 || compressed.is_some());
            assert!(sent.payload.len() < 150_000, "{} bytes by {name}", sent.payload.len());
        }
        running.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_higher_level_makes_less_of_a_payload() {
    let text = noise(3000) + &noise(2000).repeat(3);
    for layer in [Compressed::gzip(), Compressed::zstd()] {
        let broker = MemoryBroker::new();
        let mut lengths = Vec::new();
        for level in [1, 9, 22, 1000] {
            let running = start(broker.clone(), |scope| {
                scope.publish_layer(layer.level(level));
            })
            .await;
            let sent = running.publisher().publish_bytes("elsewhere", text.clone());
            sent.await.unwrap();
            running.shutdown().await.unwrap();
            lengths.push(broker.published("elsewhere").last().unwrap().payload.len());
        }
        assert!(
            lengths[0] > lengths[1] && lengths[2] == lengths[3],
            "{layer:?}: {lengths:?}"
        );
    }
}

#[tokio::test]
async fn only_what_is_worth_it_is_compressed_and_the_author_has_the_last_word() {
    let (broker, seen) = (MemoryBroker::new(), Record::default());
    let layer = Compressed::zstd().above(10).max_payload(1000);
    let running = start(broker.clone(), mount(layer, &seen)).await;
    let publisher = running.publisher();

    let letters = "abcdefghijk";
    for payload in ["x".repeat(10), "x".repeat(1001), letters.to_owned(), "x".repeat(1000)] {
        publisher.publish_bytes("elsewhere", payload).await.unwrap();
    }
    publisher
        .publish_bytes("elsewhere", "y".repeat(1000))
        .header(header::CONTENT_ENCODING, "br")
        .await
        .unwrap();

    let sent = broker.published("elsewhere");
    let encodings: Vec<_> = sent
        .iter()
        .map(|one| one.headers.get_str(header::CONTENT_ENCODING))
        .collect();
    assert_eq!(encodings, [None, None, None, Some("zstd"), Some("br")]);
    assert_eq!(sent[2].payload, letters);
    assert_eq!(sent[4].payload, "y".repeat(1000));
    running.shutdown().await.unwrap();
}

/// Says what its header of the encoding is.
#[subscriber("seen", reply)]
async fn look(text: String, headers: &HeaderMap) -> String {
    format!("{:?} {text}", headers.get_str(header::CONTENT_ENCODING))
}

#[tokio::test]
async fn what_other_programs_compressed_is_read_and_answers_come_back_compressed() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.publish_layer(Compressed::gzip().above(0));
        // What it sends by does not decide what it reads.
        scope.layer(Compressed::gzip(), |scope| {
            scope.include(look);
        });
    })
    .await;
    let publisher = running.publisher();

    let names = [
        (BY_PYTHON, "gzip"),
        (BY_PYTHON, "X-GZip "),
        (BY_ZSTD, "zstd"),
        (BY_ZSTD, "ZSTD"),
    ];
    for (digits, name) in names {
        let asked = publisher
            .publish_bytes("seen", bytes(digits))
            .header(header::CONTENT_ENCODING, name)
            .header(header::REPLY_TO, "answers");
        asked.await.unwrap();
        within(broker.idle("seen")).await;
    }
    for name in ["identity", "utf-8", ""] {
        let asked = publisher
            .publish_bytes("seen", &b"\"as it is\""[..])
            .header(header::CONTENT_ENCODING, name);
        asked.await.unwrap();
    }
    within(broker.idle("seen")).await;
    let dead = broker.dead_letters("seen");
    assert!(dead.is_empty(), "{dead:?}");

    let read: Vec<_> = broker
        .published("answers")
        .iter()
        .map(|one| one.payload.clone())
        .collect();
    assert_eq!(read, [&b"\"None an order of another program\""[..]; 4]);

    let text = "x".repeat(5000);
    let asked = publisher.publish("seen", &text).header(header::REPLY_TO, "answers");
    asked.await.unwrap();
    within(broker.idle("seen")).await;
    let answer = broker.published("answers").remove(4);
    assert_eq!(answer.headers.get_str(header::CONTENT_ENCODING), Some("gzip"));
    let client = running.client().await.unwrap();
    let answer = client.request::<_, String>("seen", &text).await.unwrap();
    assert_eq!(answer, format!("None {text}"));
    running.shutdown().await.unwrap();
}

/// What the dead letter of such a message says.
async fn refused(layer: Compressed, payload: &[u8], encoding: &'static str) -> String {
    let (broker, seen) = (MemoryBroker::new(), Record::default());
    let running = start(broker.clone(), mount(layer, &seen)).await;
    for queue in ["single", "bundles"] {
        publish_with(&broker, queue, payload, &encoded(encoding)).await;
        within(broker.idle(queue)).await;
    }
    let dead: Vec<_> = ["single", "bundles"]
        .iter()
        .flat_map(|queue| broker.dead_letters(queue))
        .collect();
    assert_eq!(dead.len(), 2);
    assert_eq!(dead[0].letter.error, dead[1].letter.error);
    assert_eq!(dead[0].letter.reason, DeadReason::Undecodable);
    // Whoever looks into it finds what came.
    assert_eq!(dead[0].payload, payload);
    assert_eq!(dead[0].headers.get_str(header::CONTENT_ENCODING), Some(encoding));
    assert_eq!(seen.len(), 0);
    running.shutdown().await.unwrap();
    dead[0].letter.error.clone()
}

#[tokio::test]
async fn a_payload_that_is_not_what_its_header_says_is_undecodable() {
    let whole = [(bytes(BY_PYTHON), "gzip"), (bytes(BY_ZSTD), "zstd")];
    for (whole, name) in whole {
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        let mut followed = whole.clone();
        followed.extend(b"more");
        let cut = whole[..whole.len() - 1].to_vec();
        for payload in [damaged, followed, cut, b"plain".to_vec(), Vec::new()] {
            let error = refused(Compressed::gzip(), &payload, name).await;
            assert!(error.contains(&format!("the payload is no whole {name}")), "{error}");
        }
    }

    let error = refused(Compressed::gzip(), b"{}", "br").await;
    assert!(error.contains("content encoding \"br\"; known: gzip, zstd"), "{error}");
    let error = refused(Compressed::gzip(), b"{}", "gzip, zstd").await;
    assert!(error.contains("\"gzip, zstd\""), "{error}");
}

/// This many zeros, as a publisher with another limit sends them.
async fn zeros(layer: Compressed, count: usize) -> Bytes {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.publish_layer(layer.max_payload(usize::MAX));
    })
    .await;
    running.publisher().publish_bytes("bomb", vec![0; count]).await.unwrap();
    running.shutdown().await.unwrap();
    broker.published("bomb").remove(0).payload
}

#[tokio::test]
async fn a_few_bytes_do_not_fill_the_memory() {
    for (layer, name) in [(Compressed::gzip(), "gzip"), (Compressed::zstd(), "zstd")] {
        let bomb = zeros(layer, 17 * 1024 * 1024).await;
        assert!(bomb.len() < 128 * 1024);
        let error = refused(layer, &bomb, name).await;
        assert!(error.contains("more than 16777216 bytes"), "{error}");

        // To the byte.
        let least = zeros(layer.above(0), 70_001).await;
        let error = refused(layer.max_payload(70_000), &least, name).await;
        assert!(error.contains("more than 70000 bytes"), "{error}");
        let (broker, seen) = (MemoryBroker::new(), Record::default());
        let running = start(broker.clone(), mount(layer.max_payload(70_001), &seen)).await;
        publish_with(&broker, "single", &least, &encoded(name)).await;
        assert_eq!(seen.reaches(1).await[0].len(), 70_001);
        running.shutdown().await.unwrap();
    }

    // A frame that asks for a window of 2 GiB, before its first byte.
    let window = bytes("28b52ffd00a8010000");
    let error = refused(Compressed::zstd(), &window, "zstd").await;
    assert!(error.contains("memory"), "{error}");
}

/// Keeps payloads for the time of a test.
#[derive(Clone, Default)]
struct Kept(Record<Vec<u8>>);

impl PayloadStore for Kept {
    async fn keep(&self, payload: &[u8]) -> Result<String, TransportError> {
        self.0.add(payload.to_vec());
        Ok((self.0.len() - 1).to_string())
    }

    async fn load(&self, name: &str) -> Result<Option<Vec<u8>>, TransportError> {
        Ok(name
            .parse()
            .ok()
            .and_then(|number: usize| self.0.all().get(number).cloned()))
    }
}

#[tokio::test]
async fn what_a_claim_check_keeps_is_compressed() {
    let (broker, seen, store) = (MemoryBroker::new(), Record::default(), Kept::default());
    let running = start(broker.clone(), |scope| {
        let check = ClaimCheck::new(store.clone(), 10);
        let layer = Compressed::zstd();
        scope.publish_layer(layer);
        scope.publish_layer(check.clone());
        scope.layer(check, |scope| {
            scope.layer(layer, |scope| {
                let seen = seen.clone();
                scope.include(handler("kept", move |given| {
                    seen.add(given.text);
                    async {}
                }));
            });
        });
    })
    .await;

    let big = "x".repeat(100_000);
    running.publisher().publish_bytes("kept", big.clone()).await.unwrap();

    assert_eq!(seen.reaches(1).await, [big]);
    assert!(store.0.all()[0].len() < 1000);
    running.shutdown().await.unwrap();
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn a_test_reads_what_was_sent_compressed() -> Result<(), Box<dyn std::error::Error>> {
    let app = RustStream::new(AppInfo::new("test", "1.0.0")).with_broker(MemoryBroker::new(), |scope| {
        scope.publish_layer(Compressed::zstd());
        scope.include(look);
    });
    let test = ruststream::testing::TestApp::start_paused(app).await?;
    let long = "x".repeat(5000);

    test.publish("seen", &long).header(header::REPLY_TO, "answers").await?;
    test.settled().await;

    let sent = test.raw_published("answers");
    assert_eq!(sent[0].headers.get_str(header::CONTENT_ENCODING), Some("zstd"));
    assert_eq!(test.published::<String>("answers"), [format!("None {long}")]);
    Ok(())
}

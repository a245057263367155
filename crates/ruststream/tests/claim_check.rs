//! Big payloads go by way of a store.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::path::PathBuf;

use common::{Record, batch_handler, handler, publish, publish_with, start, within};
use ruststream::layer::{ClaimCheck, PayloadFiles, PayloadStore};
use ruststream::message::{HeaderMap, header};
use ruststream::prelude::*;

/// A folder that ends with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ruststream-{}-{name}", std::process::id()));
        Self(folder)
    }

    fn files(&self) -> usize {
        std::fs::read_dir(&self.0).map_or(0, Iterator::count)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_big_payload_comes_out_as_it_went_in() {
    let (broker, seen, folder) = (MemoryBroker::new(), Record::default(), Folder::new("whole"));
    let running = {
        let check = ClaimCheck::new(PayloadFiles::new(&folder.0), 100);
        start(broker.clone(), |scope| {
            scope.publish_layer(check.clone());
            scope.layer(check, |scope| {
                let one = seen.clone();
                scope.include(handler("single", move |given| {
                    one.add(given.text);
                    async {}
                }));
                let many = seen.clone();
                let bundles = batch_handler("bundles", move |given| {
                    for one in given {
                        many.add(one.text);
                    }
                    async {}
                });
                scope.include(bundles);
            });
        })
        .await
    };
    let (big, small) = ("x".repeat(101), "x".repeat(100));

    for name in ["single", "bundles"] {
        for payload in [&big, &small, &big] {
            running.publisher().publish_bytes(name, payload.clone()).await.unwrap();
        }
        within(broker.idle(name)).await;
    }

    let seen = seen.all();
    assert_eq!(
        seen.iter().collect::<Vec<_>>(),
        [&big, &small, &big, &big, &small, &big]
    );
    assert_eq!(folder.files(), 4);

    let publisher = running.publisher();
    publisher.publish_bytes("unread", big).await.unwrap();
    let sent = broker.published("unread").remove(0);
    assert!(sent.payload.is_empty());
    // Headers that were copied from another message lead nobody to that one's payload.
    publisher.publish("unread", &7u64).headers(&sent.headers).await.unwrap();
    let copied = broker.published("unread").remove(1);
    assert_eq!(
        (&copied.payload[..], copied.headers.get(header::CLAIM_CHECK)),
        (&b"7"[..], None)
    );
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_payload_that_is_not_there_is_undecodable_and_names_lead_nowhere_else() {
    let (broker, folder) = (MemoryBroker::new(), Folder::new("missing"));
    let store = PayloadFiles::new(&folder.0);
    let name = store.keep(b"here").await.unwrap();
    assert_eq!(store.load(&name).await.unwrap().as_deref(), Some(&b"here"[..]));
    for other in ["", "..", "/etc/passwd", "../../../../../../../etc/passwd0"] {
        assert!(store.load(other).await.unwrap().is_none());
    }
    let running = start(broker.clone(), |scope| {
        scope.layer(ClaimCheck::new(store, 100), |scope| {
            scope.include(handler("single", |_| async {}));
        });
    })
    .await;

    let missing = HeaderMap::from_iter([(header::CLAIM_CHECK, "0".repeat(32))]);
    publish_with(&broker, "single", b"", &missing).await;
    publish(&broker, "single", ["1"]).await;
    within(broker.idle("single")).await;

    let dead = broker.dead_letters("single");
    assert_eq!(dead.len(), 1);
    assert!(
        dead[0].letter.error.contains("not in the store"),
        "{}",
        dead[0].letter.error
    );
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_payload_that_cannot_be_kept_is_not_sent() {
    let (broker, folder) = (MemoryBroker::new(), Folder::new("refused"));
    std::fs::write(&folder.0, b"a file where a folder should be").unwrap();
    let running = start(broker.clone(), |scope| {
        scope.publish_layer(ClaimCheck::new(PayloadFiles::new(&folder.0), 0));
    })
    .await;

    let error = running.publisher().publish("single", &7u64).await.unwrap_err();

    assert!(error.to_string().contains("cannot keep the payload"), "{error}");
    assert!(broker.published("single").is_empty());
    std::fs::remove_file(&folder.0).unwrap();
    running.shutdown().await.unwrap();
}

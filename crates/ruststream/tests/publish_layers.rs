//! Layers around publishing: what they see, change and refuse, whoever publishes.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use common::{Record, app, batch_handler, health, publish, publish_ids, start, within};
use ruststream::app::BrokerScope;
use ruststream::memory::Operation;
use ruststream::prelude::*;
use ruststream::publish::{Prepared, PublishLayer};
use ruststream::transport::{Broker, ErrorKind, PublishError, TransportError};

/// Numbers what is sent, notes its end, and refuses what goes to `forbidden`.
#[derive(Clone, Default)]
struct Numbered {
    name: &'static str,
    sent: Record<(&'static str, String)>,
    ended: Record<(&'static str, String, bool)>,
}

impl PublishLayer for Numbered {
    async fn before(&self, message: &mut Prepared) -> Result<(), TransportError> {
        tokio::task::yield_now().await;
        if message.destination() == "forbidden" {
            return Err(TransportError::new(ErrorKind::Refused, "it is forbidden"));
        }
        self.sent.add((self.name, message.destination().to_owned()));
        message.headers_mut().append("number", self.name);
        message.payload_mut().push(b' ');
        Ok(())
    }

    fn after(&self, message: &Prepared, result: Result<(), &TransportError>) {
        self.ended
            .add((self.name, message.destination().to_owned(), result.is_ok()));
    }
}

#[subscriber("orders", reply = "receipts")]
async fn confirm(id: u64, lines: Out<u64>) -> Result<u64, PublishError> {
    lines.publish("lines", &id).await?;
    Ok(id)
}

#[subscriber("misled", reply = "forbidden")]
async fn misled(id: u64) -> u64 {
    id
}

fn mount<B: Broker>(layer: Numbered) -> impl FnOnce(&mut BrokerScope<'_, B, ()>) {
    move |scope| {
        scope.include(confirm);
        scope
            .include(misled)
            .retry(Retry::fixed(Duration::from_secs(1)).attempts(2));
        scope.publish_layer(Numbered {
            name: "outer",
            ..layer.clone()
        });
        scope.publish_layer(Numbered { name: "inner", ..layer });
    }
}

#[tokio::test(start_paused = true)]
async fn every_message_of_an_app_passes_the_layers() {
    let (broker, layer) = (MemoryBroker::new(), Numbered::default());
    let running = start(broker.clone(), mount(layer.clone())).await;

    running.publisher().publish("orders", &7u64).await.unwrap();
    within(broker.idle("orders")).await;
    running.publisher().publish_many("many", &[1u64, 2]).await.unwrap();
    running
        .publisher()
        .publish_bytes("bytes", b"1".as_slice())
        .await
        .unwrap();
    let client = running.client().await.unwrap();
    let asked = client.request::<u64, u64>("orders", &8).await.unwrap();

    assert_eq!(asked, 8);
    let sent = layer.sent.all();
    let names: Vec<_> = sent.iter().step_by(2).map(|(_, place)| place.as_str()).collect();
    let start = [
        "orders", "lines", "receipts", "many", "many", "bytes", "orders", "lines",
    ];
    assert_eq!(names[..8], start);
    assert!(names[8].starts_with("replies."));
    for (at, (name, _)) in sent.iter().enumerate() {
        assert_eq!(*name, ["outer", "inner"][at % 2], "the outer is the first");
    }
    assert_eq!(layer.ended.len(), sent.len());
    assert_eq!(
        layer.ended.all()[..2],
        [
            ("inner", "orders".to_owned(), true),
            ("outer", "orders".to_owned(), true)
        ]
    );
    let receipt = broker.published("receipts").remove(0);
    assert_eq!(&receipt.payload[..], b"7  ");
    assert_eq!(receipt.headers.get_all("number").count(), 2);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_publishes_learns_that_a_layer_refuses() {
    let (broker, layer) = (MemoryBroker::new(), Numbered::default());
    let running = start(broker.clone(), mount(layer.clone())).await;

    let error = running.publisher().publish("forbidden", &7u64).await.unwrap_err();
    assert_eq!(error.first().kind(), ErrorKind::Refused);
    let error = running
        .publisher()
        .publish_many("forbidden", &[7u64])
        .await
        .unwrap_err();
    assert_eq!(error.first().kind(), ErrorKind::Refused);

    publish_ids(&broker, "misled", [1]).await;
    within(broker.idle("misled")).await;
    let dead = broker.dead_letters("misled").remove(0);
    assert!(dead.letter.error.contains("it is forbidden"), "{}", dead.letter.error);
    assert_eq!(dead.letter.attempts, 2);
    assert!(broker.published("forbidden").is_empty());
    assert_eq!(layer.ended.len(), 0);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_layer_learns_what_was_not_confirmed() {
    let (broker, layer) = (MemoryBroker::new(), Numbered::default());
    let running = start(broker.clone(), mount(layer.clone())).await;

    broker.fail_next(Operation::Publish, 1, ErrorKind::Unavailable);
    assert!(running.publisher().publish("orders", &7u64).await.is_err());
    publish_ids(&broker, "orders", [7]).await;
    within(broker.idle("orders")).await;

    let ended: Vec<_> = layer
        .ended
        .all()
        .into_iter()
        .map(|(_, place, well)| (place, well))
        .collect();
    let expected = [("orders", false), ("lines", true), ("receipts", true)];
    let expected = expected.map(|(place, well)| (place.to_owned(), well));
    assert_eq!(ended.into_iter().step_by(2).collect::<Vec<_>>(), expected);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_passes_by_the_layers() {
    let (broker, layer) = (MemoryBroker::new(), Numbered::default());
    let running = {
        let layer = layer.clone();
        start(broker.clone(), |scope| {
            scope.publish_layer(layer);
            scope
                .include(batch_handler("bundles", |_| async {
                    HandlerOutcome::dead_letter("no")
                }))
                .dead_letter("cellar");
        })
        .await
    };

    publish(&broker, "bundles", ["1"]).await;
    within(broker.idle("bundles")).await;

    assert_eq!(&broker.published("cellar")[0].payload[..], b"1");
    assert_eq!((layer.sent.len(), health(&running).dead_lettered), (0, 1));
    running.shutdown().await.unwrap();
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn an_app_under_test_keeps_its_layers() {
    use ruststream::testing::TestApp;

    let layer = Numbered::default();
    let test = TestApp::start_paused(app(MemoryBroker::new(), mount(layer.clone())))
        .await
        .unwrap();
    test.publish("orders", &7u64).await.unwrap();
    test.settled().await;

    let receipt = test.raw_published("receipts").remove(0);
    assert_eq!(receipt.headers.get_all("number").count(), 2);
    assert_eq!(layer.sent.len(), 4, "what the test publishes is its own");
    test.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_hangs_is_ended_by_the_time_out_of_the_call() {
    struct Hanging;

    impl PublishLayer for Hanging {
        async fn before(&self, _: &mut Prepared) -> Result<(), TransportError> {
            std::future::pending().await
        }
    }

    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.publish_layer(Hanging);
        scope
            .include(misled)
            .timeout(Duration::from_secs(1))
            .retry(Retry::fixed(Duration::from_secs(1)).attempts(2));
    })
    .await;
    publish_ids(&broker, "misled", [1]).await;
    within(broker.idle("misled")).await;

    let dead = broker.dead_letters("misled").remove(0);
    assert!(dead.letter.error.contains("time-out of 1s"), "{}", dead.letter.error);
    running.shutdown().await.unwrap();
}

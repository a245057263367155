//! What layers see of a call, and what they hand to the handlers under them.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::fmt;

use common::{Record, publish_ids, publish_with, start_one, within};
use ruststream::handler::{BatchOutcome, Batched, Layer, Outcome, Single};
use ruststream::message::{HeaderMap, Incoming, header};
use ruststream::prelude::*;

#[derive(Debug, Clone, PartialEq)]
struct Tenant(&'static str);

/// Sets a value for each call.
struct Set<T>(T);

impl<T: Send + Sync + 'static> Layer for Set<T> {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        next.call(call.extend(&self.0).call()).await
    }
}

type Seen = Record<String>;

#[subscriber("orders")]
async fn tell(id: u64, Extension(tenant): Extension<Tenant>, number: Option<Extension<u8>>, State(seen): State<Seen>) {
    seen.add(format!("{id} of {} {number:?}", tenant.0));
}

async fn run(mount: impl FnOnce(&mut ruststream::app::BrokerScope<'_, MemoryBroker, Seen>)) -> (MemoryBroker, Seen) {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = RustStream::new(AppInfo::new("test", "1.0.0"))
        .state(seen.clone())
        .with_broker(broker.clone(), mount)
        .start()
        .await
        .unwrap();
    publish_ids(&broker, "orders", [1]).await;
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();
    (broker, seen)
}

#[tokio::test(start_paused = true)]
async fn a_handler_takes_what_layers_have_set_and_the_inner_value_counts() {
    let (_, seen) = run(|broker| {
        broker.layer(Set(7u8), |broker| {
            broker.layer(Set(Tenant("outer")), |broker| {
                broker.layer(Set(Tenant("inner")), |broker| {
                    broker.include(tell);
                });
            });
        });
    })
    .await;
    assert_eq!(seen.all(), ["1 of inner Some(Extension(7))"]);
    let (_, seen) = run(|broker| {
        broker.layer(Set(Tenant("one")), |broker| {
            broker.include(tell);
        });
    })
    .await;
    assert_eq!(seen.all(), ["1 of one None"]);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_no_layer_has_set_fails_the_call_and_is_named() {
    let (broker, seen) = run(|broker| {
        broker.include(tell).retry(Retry::never());
    })
    .await;
    assert_eq!(seen.len(), 0);
    let error = broker.dead_letters("orders").remove(0).letter.error;
    assert!(error.contains("no layer has set a `extensions::Tenant`"), "{error}");
}

#[derive(Debug)]
struct Refused(u64);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is refused", self.0)
    }
}

/// Notes what it sees of each message, and of each error.
struct Sees(Seen);

impl Sees {
    fn message(&self, incoming: Incoming<'_>) {
        let payload = String::from_utf8_lossy(incoming.payload());
        let place = incoming.headers().get_str("place");
        self.0
            .add(format!("{payload} {place:?} attempt {}", incoming.attempt()));
    }

    fn outcome(&self, outcome: &Outcome) {
        if let Outcome::Failed(failure) = outcome {
            let number = failure.inspect(|refused: &Refused| refused.0);
            let other = failure.inspect(|text: &String| text.len());
            self.0.add(format!("{number:?} {other:?}: {}", failure.text()));
        }
    }
}

impl Layer for Sees {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        self.message(call.incoming());
        let outcome = next.call(call).await;
        self.outcome(&outcome);
        outcome
    }

    async fn call_batch<'a, S: Send + Sync + 'static>(
        &'a self,
        calls: &'a [Call<'a, S>],
        next: &'a impl Batched<S>,
    ) -> BatchOutcome {
        for call in calls {
            self.message(call.incoming());
        }
        let outcome = next.call(calls).await;
        match &outcome {
            BatchOutcome::All(outcome) => self.outcome(outcome),
            BatchOutcome::Each(outcomes) => outcomes.iter().for_each(|outcome| self.outcome(outcome)),
            _ => {}
        }
        outcome
    }
}

#[subscriber("orders")]
async fn refuse_once(id: u64, context: Context<'_>) -> Result<(), Refused> {
    if context.attempt() == 1 {
        Err(Refused(id))
    } else {
        Ok(())
    }
}

#[subscriber("orders")]
async fn refuse_odd(ids: &[u64]) -> Vec<Result<(), Refused>> {
    let judge = |id: &u64| if id % 2 == 1 { Err(Refused(*id)) } else { Ok(()) };
    ids.iter().map(judge).collect()
}

#[tokio::test(start_paused = true)]
async fn a_layer_sees_payload_headers_attempt_and_the_error_itself() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let layer = Sees(seen.clone());
    let running = common::start(broker.clone(), |scope| {
        scope.layer(layer, |scope| {
            scope.include(refuse_once).retry(Retry::fixed(Duration::from_secs(1)));
        });
    })
    .await;
    publish_with(&broker, "orders", b"7", &HeaderMap::from_iter([("place", "here")])).await;
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();

    assert_eq!(
        seen.all(),
        [
            r#"7 Some("here") attempt 1"#,
            "Some(7) None: 7 is refused",
            r#"7 Some("here") attempt 2"#
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_layer_sees_each_message_of_a_batch_and_its_error() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    publish_ids(&broker, "orders", [1, 2, 3]).await;
    let layer = Sees(seen.clone());
    let running = common::start(broker.clone(), |scope| {
        scope.layer(layer, |scope| {
            scope.include(refuse_odd).batch(3).retry(Retry::never());
        });
    })
    .await;
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();

    assert_eq!(
        seen.all(),
        [
            "1 None attempt 1",
            "2 None attempt 1",
            "3 None attempt 1",
            "Some(1) None: 1 is refused",
            "Some(3) None: 3 is refused"
        ]
    );
}

#[subscriber("orders")]
async fn sum(ids: &[u64], sums: Out<u64>) -> Result<(), PublishError> {
    sums.publish("sums", &ids.iter().sum()).await
}

#[tokio::test(start_paused = true)]
async fn what_all_messages_of_a_batch_have_in_common_travels_with_what_they_cause() {
    let broker = MemoryBroker::new();
    for (payload, id, trace) in [(b"1", "one", "t"), (b"2", "two", "t")] {
        let headers = HeaderMap::from_iter([(header::MESSAGE_ID, id), (header::TRACE_PARENT, trace)]);
        publish_with(&broker, "orders", payload, &headers).await;
    }
    let running = start_one(&broker, &(), sum, |orders| {
        orders.batch(2).batch_age(Duration::from_secs(1));
    })
    .await;
    within(broker.idle("orders")).await;
    let alone = HeaderMap::from_iter([(header::MESSAGE_ID, "three")]);
    publish_with(&broker, "orders", b"3", &alone).await;
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();

    let sums = broker.published("sums");
    let headers = |place: usize, name| sums[place].headers.get_str(name);
    assert_eq!(headers(0, header::TRACE_PARENT), Some("t"));
    assert_eq!(headers(0, header::CORRELATION_ID), None);
    assert_eq!(headers(1, header::CORRELATION_ID), Some("three"));
}

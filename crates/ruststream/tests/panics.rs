//! A panic, wherever it happens, costs its message an attempt and nothing else.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::fmt;

use common::{Gate, Record, app, handler, health, publish, publish_ids, publish_keyed, start, start_one, within};
use ruststream::app::{Running, Subscription};
use ruststream::handler::{
    BatchOutcome, Batched, Call, Definition, Extract, Handler, Layer, Layers, Mounting, Outcome, Single, Subscriber,
};
use ruststream::policy::Backoff;
use ruststream::prelude::*;
use serde::Deserializer;
use tokio::time::Instant;

const POISON: u64 = 666;

type Handled = Record<u64>;

/// Starts a handler with two workers and two attempts, sends it poison and 100 good messages, and awaits the end of all.
async fn poisoned<H: Subscriber<Handled>>(
    mounted: H,
    set: impl FnOnce(&mut Subscription<MemoryBroker>),
) -> (MemoryBroker, Handled, Running) {
    let (broker, handled) = (MemoryBroker::new(), Handled::default());
    let running = start_one(&broker, &handled, mounted, |orders| {
        orders
            .workers(2)
            .retry(Retry::fixed(Duration::from_secs(1)).attempts(2));
        set(orders);
    })
    .await;
    publish_ids(&broker, "orders", [POISON, POISON, POISON]).await;
    publish_ids(&broker, "orders", 1..=100).await;
    within(broker.idle("orders")).await;
    (broker, handled, running)
}

/// All good ones were handled, the poison is dead with its text after two attempts, and the workers live.
async fn assert_survived((broker, handled, running): (MemoryBroker, Handled, Running), text: &str) {
    let mut good = handled.all();
    good.sort_unstable();
    good.dedup();
    assert_eq!(good, (1..=100).collect::<Vec<_>>());
    let dead = broker.dead_letters("orders");
    assert_eq!(dead.len(), 3);
    for dead in &dead {
        assert_eq!(&dead.payload[..], POISON.to_string().as_bytes());
        assert_eq!((&dead.letter.error[..], dead.letter.attempts), (text, 2));
    }
    let health = health(&running);
    assert_eq!((health.workers, health.in_hand), (2, 0));
    assert!(running.health().is_ready());
    running.shutdown().await.unwrap();
}

#[subscriber("orders")]
async fn before_an_await(id: u64, State(handled): State<Handled>) {
    assert!(id != POISON, "poison before an await");
    tokio::task::yield_now().await;
    handled.add(id);
}

#[tokio::test(start_paused = true)]
async fn in_the_handler_before_an_await() {
    assert_survived(poisoned(before_an_await, |_| {}).await, "poison before an await").await;
}

#[subscriber("orders")]
async fn after_an_await(id: u64, State(handled): State<Handled>) {
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(id != POISON, "poison after an await of {id}");
    handled.add(id);
}

#[tokio::test(start_paused = true)]
async fn in_the_handler_after_an_await() {
    assert_survived(poisoned(after_an_await, |_| {}).await, "poison after an await of 666").await;
}

struct Checked;

impl<'a, S: Send + Sync> Extract<'a, S> for Checked {
    type Rejection = String;

    async fn extract(call: Call<'a, S>) -> Result<Self, String> {
        assert!(call.incoming().payload() != b"666", "the extractor panics");
        Ok(Self)
    }
}

#[subscriber("orders")]
async fn with_extractor(id: u64, _checked: Checked, State(handled): State<Handled>) {
    handled.add(id);
}

#[tokio::test(start_paused = true)]
async fn in_an_extractor() {
    assert_survived(poisoned(with_extractor, |_| {}).await, "the extractor panics").await;
}

struct PanicsInDecode(u64);

impl<'de> Deserialize<'de> for PanicsInDecode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = u64::deserialize(deserializer)?;
        assert!(id != POISON, "the decoding panics");
        Ok(Self(id))
    }
}

#[subscriber("orders")]
async fn decoded(message: PanicsInDecode, State(handled): State<Handled>) {
    handled.add(message.0);
}

#[tokio::test(start_paused = true)]
async fn in_the_decoding() {
    assert_survived(poisoned(decoded, |_| {}).await, "the decoding panics").await;
}

#[derive(Deserialize)]
struct PanicsInDrop(u64);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        assert!(self.0 != POISON, "the drop of the message panics");
    }
}

#[subscriber("orders")]
async fn dropped(message: PanicsInDrop, State(handled): State<Handled>) {
    tokio::task::yield_now().await;
    handled.add(message.0);
}

#[tokio::test(start_paused = true)]
async fn in_the_drop_of_the_message() {
    let (broker, handled, running) = poisoned(dropped, |_| {}).await;
    assert_eq!(handled.all().iter().filter(|id| **id == POISON).count(), 6);
    let good = Record::default();
    handled
        .all()
        .into_iter()
        .filter(|id| *id != POISON)
        .for_each(|id| good.add(id));
    assert_survived((broker, good, running), "the drop of the message panics").await;
}

struct PanickingError;

impl fmt::Display for PanickingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an error with an end")
    }
}

impl Drop for PanickingError {
    fn drop(&mut self) {
        panic!("the drop of the error panics");
    }
}

#[subscriber("orders")]
async fn error_dropped(id: u64, State(handled): State<Handled>) -> Result<(), PanickingError> {
    if id == POISON {
        return Err(PanickingError);
    }
    handled.add(id);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn in_the_drop_of_the_error() {
    assert_survived(poisoned(error_dropped, |_| {}).await, "an error with an end").await;
}

struct Unprintable;

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("the error panics when it is printed");
    }
}

#[subscriber("orders")]
async fn unprintable(id: u64, State(handled): State<Handled>) -> Result<(), Unprintable> {
    if id == POISON {
        return Err(Unprintable);
    }
    handled.add(id);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn in_the_text_of_the_error() {
    assert_survived(
        poisoned(unprintable, |_| {}).await,
        "the error panics when it is printed",
    )
    .await;
}

#[subscriber("orders")]
async fn dropped_at_timeout(id: u64, State(handled): State<Handled>) {
    struct Guard(bool);
    impl Drop for Guard {
        fn drop(&mut self) {
            assert!(!self.0, "the drop of the call panics");
        }
    }
    let _guard = Guard(id == POISON);
    if id == POISON {
        std::future::pending::<()>().await;
    }
    handled.add(id);
}

#[tokio::test(start_paused = true)]
async fn in_the_drop_of_a_call_whose_time_is_up() {
    let survived = poisoned(dropped_at_timeout, |orders| {
        orders.timeout(Duration::from_secs(1));
    })
    .await;
    assert_survived(survived, "the drop of the call panics").await;
}

#[subscriber("orders")]
async fn failing(id: u64, State(handled): State<Handled>) -> Result<(), String> {
    if id == POISON {
        return Err("poison".to_owned());
    }
    handled.add(id);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn in_the_choice_of_a_policy() {
    // The default policy holds instead: five attempts.
    let (broker, handled, running) = poisoned(failing, |orders| {
        orders.retry_when(|_: &String| panic!("the choice panics"));
    })
    .await;
    assert_eq!(handled.len(), 100);
    let attempts: Vec<_> = broker
        .dead_letters("orders")
        .iter()
        .map(|dead| dead.letter.attempts)
        .collect();
    assert_eq!(attempts, [5, 5, 5]);
    assert_eq!(health(&running).workers, 2);
    running.shutdown().await.unwrap();
}

#[subscriber("orders")]
async fn asking(id: u64, State(handled): State<Handled>) -> HandlerOutcome {
    if id == POISON {
        return HandlerOutcome::retry();
    }
    handled.add(id);
    HandlerOutcome::ack()
}

#[tokio::test(start_paused = true)]
async fn in_a_backoff_of_ones_own() {
    for by_outcome in [false, true] {
        let set = |orders: &mut Subscription<MemoryBroker>| {
            let panicking = Backoff::own(|_| panic!("the backoff panics"));
            orders.retry(Retry::with_backoff(panicking).attempts(2));
        };
        let (broker, handled, running) = if by_outcome {
            poisoned(asking, set).await
        } else {
            poisoned(failing, set).await
        };
        assert_eq!(handled.len(), 100);
        assert_eq!(broker.dead_letters("orders").len(), 3);
        assert_eq!((health(&running).workers, health(&running).in_hand), (2, 0));
        running.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn in_the_key_of_a_message() {
    let survived = poisoned(failing, |orders| {
        orders.ordered_by(OrderBy::message(|id: &u64| {
            assert!(*id != POISON, "the key panics");
            *id
        }));
    })
    .await;
    assert_survived(survived, "poison").await;
}

#[subscriber("orders")]
async fn strange(id: u64, State(handled): State<Handled>) {
    if id == POISON {
        std::panic::panic_any(7u8);
    }
    handled.add(id);
}

#[tokio::test(start_paused = true)]
async fn with_something_that_is_no_text() {
    assert_survived(poisoned(strange, |_| {}).await, "a panic without a text").await;
}

/// A handler by hand whose `call` panics before there is a future.
struct EarlyPanic;

impl Single<Handled> for EarlyPanic {
    fn call<'a>(&'a self, call: Call<'a, Handled>) -> impl Future<Output = Outcome> + Send + 'a {
        let id: u64 = call.decode().unwrap();
        assert!(id != POISON, "no future");
        call.state().add(id);
        std::future::ready(Outcome::ACK)
    }
}

impl Subscriber<Handled> for EarlyPanic {
    fn definition(&self) -> Definition {
        Definition::new("early", "orders")
    }

    fn into_handler<L: Layers>(self, mounting: Mounting<Handled, L>) -> Handler {
        mounting.single(self)
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_handler_by_hand_before_its_future() {
    assert_survived(poisoned(EarlyPanic, |_| {}).await, "no future").await;
}

/// A batch handler by hand whose `call` panics before there is a future.
struct EarlyBatchPanic;

impl Batched<Handled> for EarlyBatchPanic {
    fn call<'a>(&'a self, calls: &'a [Call<'a, Handled>]) -> impl Future<Output = BatchOutcome> + Send + 'a {
        let ids: Vec<u64> = calls.iter().map(|call| call.decode().unwrap()).collect();
        assert!(!ids.contains(&POISON), "no future");
        for id in ids {
            calls[0].state().add(id);
        }
        std::future::ready(BatchOutcome::All(Outcome::ACK))
    }
}

impl Subscriber<Handled> for EarlyBatchPanic {
    fn definition(&self) -> Definition {
        Definition::new("early", "orders").with_batch()
    }

    fn into_handler<L: Layers>(self, mounting: Mounting<Handled, L>) -> Handler {
        mounting.batched(self)
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_batch_handler_by_hand_before_its_future() {
    assert_survived(poisoned(EarlyBatchPanic, |_| {}).await, "no future").await;
}

#[subscriber("orders")]
async fn batch_error(ids: &[u64], State(handled): State<Handled>) -> Result<(), PanickingError> {
    if ids.contains(&POISON) {
        return Err(PanickingError);
    }
    for id in ids {
        handled.add(*id);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn in_the_drop_of_a_batchs_error() {
    assert_survived(poisoned(batch_error, |_| {}).await, "an error with an end").await;
}

#[subscriber("orders")]
async fn batch_count(ids: &[u64], State(handled): State<Handled>) -> Vec<Result<(), PanickingError>> {
    if ids.contains(&POISON) {
        let too_many = ids.iter().map(|_| Ok(()));
        return too_many.chain([Err(PanickingError)]).collect();
    }
    for id in ids {
        handled.add(*id);
    }
    ids.iter().map(|_| Ok(())).collect()
}

#[tokio::test(start_paused = true)]
async fn in_the_drop_of_one_outcome_too_many() {
    let text = "the batch handler answered 2 outcomes for 1 messages; return one for each, in their order";
    assert_survived(poisoned(batch_count, |_| {}).await, text).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panicked_goes_on_in_order() {
    let (broker, handled) = (MemoryBroker::new(), Record::<String>::default());
    let running = start(broker.clone(), |scope| {
        let handled = handled.clone();
        scope
            .include(handler("orders", move |given| {
                handled.add(format!("{} {}", given.text, given.attempt));
                let panics = given.text == "2" && given.attempt == 1;
                async move { assert!(!panics, "once") }
            }))
            .retry(Retry::fixed(Duration::from_secs(1)))
            .ordered_by(OrderBy::key());
    })
    .await;
    let begun = Instant::now();

    for text in ["1", "2", "3"] {
        publish_keyed(&broker, "orders", "one", text).await;
    }
    within(broker.idle("orders")).await;

    assert_eq!(handled.all(), ["1 1", "2 1", "2 2", "3 1"]);
    assert_eq!(begun.elapsed().as_secs(), 1);
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_several_threads_every_worker_lives_on() {
    let (broker, handled) = (MemoryBroker::new(), Record::<String>::default());
    let running = start(broker.clone(), |scope| {
        let handled = handled.clone();
        scope
            .include(handler("orders", move |given| {
                let handled = handled.clone();
                async move {
                    assert!(given.text != "poison", "poison");
                    handled.add(given.text);
                }
            }))
            .workers(8)
            .retry(Retry::fixed(Duration::ZERO).attempts(3));
    })
    .await;

    for round in 0..50 {
        publish(&broker, "orders", ["poison".to_owned(), round.to_string()]).await;
    }
    within(broker.idle("orders")).await;

    assert_eq!((handled.len(), broker.dead_letters("orders").len()), (50, 50));
    assert_eq!(health(&running).workers, 8);
    running.shutdown().await.unwrap();
}

/// A layer that panics around the poisoned calls, before the handler or after it.
struct PanicsAround {
    before: bool,
}

impl Layer for PanicsAround {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        let poisoned = call.incoming().payload() == b"666";
        assert!(!(poisoned && self.before), "the layer panics");
        let outcome = next.call(call).await;
        assert!(!poisoned, "the layer panics");
        outcome
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_layer() {
    for before in [true, false] {
        let (broker, handled) = (MemoryBroker::new(), Handled::default());
        let running = {
            let handled = handled.clone();
            start(broker.clone(), |scope| {
                scope.layer(PanicsAround { before }, |scope| {
                    scope
                        .include(handler("orders", move |given| {
                            if given.id() != POISON {
                                handled.add(given.id());
                            }
                            std::future::ready(())
                        }))
                        .workers(2)
                        .retry(Retry::fixed(Duration::from_secs(1)).attempts(2));
                });
            })
            .await
        };
        publish_ids(&broker, "orders", [POISON, POISON, POISON]).await;
        publish_ids(&broker, "orders", 1..=100).await;
        within(broker.idle("orders")).await;
        assert_survived((broker, handled, running), "the layer panics").await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_app_drains() {
    let (broker, gate, begun) = (MemoryBroker::new(), Gate::closed(), Record::<u64>::default());
    let running = {
        let (gate, begun) = (gate.clone(), begun.clone());
        start(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    begun.add(given.id());
                    let gate = gate.clone();
                    async move {
                        gate.pass().await;
                        assert!(given.id() != 1, "in the drain");
                    }
                }))
                .workers(2)
                .prefetch(10);
        })
        .await
    };
    publish_ids(&broker, "orders", 1..=10).await;
    begun.reaches(2).await;

    running.stop();
    gate.let_go(2);
    running.shutdown().await.unwrap();

    // The one is to be tried again with its attempt counted, the other acked, the rest given back.
    let standing = broker.published("orders");
    let attempts: Vec<_> = standing.iter().map(|one| (one.payload[0], one.attempts)).collect();
    assert_eq!((attempts.len(), attempts.last()), (9, Some(&(b'1', 1))));
    assert!(attempts[..8].iter().all(|(_, attempts)| *attempts == 0));
    assert_eq!(broker.counts("orders").acked, 1);
}

#[tokio::test(start_paused = true)]
async fn in_the_drop_of_a_call_at_the_end_of_the_grace_period() {
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            panic!("in the drop");
        }
    }
    let (broker, begun) = (MemoryBroker::new(), Record::<u64>::default());
    let running = {
        let begun = begun.clone();
        app(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    begun.add(given.id());
                    async move {
                        let _guard = Guard;
                        std::future::pending::<()>().await;
                    }
                }))
                .workers(2);
        })
        .shutdown_grace(Duration::from_secs(5))
        .start()
        .await
        .unwrap()
    };
    publish_ids(&broker, "orders", 1..=2).await;
    begun.reaches(2).await;

    let stopped = Instant::now();
    running.shutdown().await.unwrap();

    assert_eq!(stopped.elapsed().as_secs(), 5);
    assert_eq!((broker.held("orders"), broker.published("orders").len()), (2, 2));
}

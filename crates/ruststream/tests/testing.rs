//! What `TestApp` shows of an app, and what it prints when a test fails.
#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ruststream::app::{AppBuilder, BrokerScope};
use ruststream::handler::FailureKind;
use ruststream::memory::{MemoryConnection, Operation, Queue};
use ruststream::message::TransportOptions;
use ruststream::prelude::*;
use ruststream::publish::{Prepared, PublishLayer};
use ruststream::testing::{CallOutcome, TestApp};
use ruststream::transport::{Broker, DeadReason, ErrorKind, TransportError};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    order: u64,
}

/// A broker that nothing is ever to reach: a test that connects to it fails.
struct Elsewhere(&'static str);

impl Broker for Elsewhere {
    type Connection = MemoryConnection;
    type Source = Queue;

    fn label(&self) -> String {
        self.0.to_owned()
    }

    fn source(&self, name: &str) -> Queue {
        Queue::new(name)
    }

    async fn connect(&self) -> Result<MemoryConnection, TransportError> {
        Err(TransportError::new(
            ErrorKind::Denied,
            "this test goes to the real broker",
        ))
    }
}

/// Confirms at the attempt that is the number of the order.
#[subscriber("orders", reply = "receipts")]
async fn confirm(order: Order, context: Context<'_>) -> Result<Receipt, String> {
    if u64::from(context.attempt()) < order.id {
        return Err(format!("attempt {} is too early", context.attempt()));
    }
    Ok(Receipt { order: order.id })
}

#[subscriber("receipts")]
async fn mail(receipt: Receipt, letters: Out<String>) -> Result<(), ruststream::transport::PublishError> {
    letters
        .publish("letters", &format!("order {}", receipt.order))
        .key("mail")
        .await
}

#[subscriber("slow")]
async fn slow(id: u64) {
    tokio::time::sleep(Duration::from_secs(id)).await;
}

#[subscriber("stuck")]
async fn stuck(_id: u64) {
    pending::<()>().await;
}

#[subscriber("mines")]
async fn step(id: u64) {
    assert!(id != 13, "mine {id}");
}

fn app(mount: impl FnOnce(&mut BrokerScope<'_, Elsewhere, ()>)) -> AppBuilder<()> {
    RustStream::new(AppInfo::new("shop", "1.0.0")).with_broker(Elsewhere("far away"), mount)
}

/// A shop that tries every hour, three times.
fn shop() -> AppBuilder<()> {
    app(|broker| {
        broker
            .include(confirm)
            .retry(Retry::fixed(Duration::from_hours(1)).attempts(3));
    })
}

#[tokio::test(start_paused = true)]
async fn hours_of_backoff_pass_at_once_and_each_call_is_seen() {
    let test = TestApp::start(shop()).await.unwrap();

    test.publish("orders", &Order { id: 3 }).await.unwrap();
    test.settled().await;

    assert_eq!(test.published::<Receipt>("receipts"), [Receipt { order: 3 }]);
    let calls = test.calls::<Order>("orders");
    assert_eq!(calls.iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(calls[0].message, Order { id: 3 });
    assert_eq!(calls[0].error(), Some("attempt 1 is too early"));
    assert_eq!(calls[0].retry_after, Some(Duration::from_hours(1)));
    assert_eq!(calls[2].outcome, CallOutcome::Replied("receipts".to_owned()));
    assert!(calls[2].is_ok());
    assert_eq!(test.calls::<Order>("confirm"), calls);
}

#[tokio::test]
async fn a_test_without_attributes_can_stop_the_clock_too() {
    let test = TestApp::start_paused(shop()).await.unwrap();
    let before = tokio::time::Instant::now();

    test.publish("orders", &Order { id: 3 }).await.unwrap();
    test.settled().await;

    assert_eq!(before.elapsed().as_secs(), 2 * 3600);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_many_threads_is_refused() {
    let starting = tokio::spawn(async { TestApp::start_paused(shop()).await.map(drop) });

    let panic = starting.await.unwrap_err().into_panic();

    let text = panic.downcast_ref::<&str>().unwrap();
    assert!(text.contains("write `#[tokio::test]` without a flavor"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn headers_key_and_delay_travel_and_a_delay_is_waited_for() {
    let test = TestApp::start(shop()).await.unwrap();
    let before = tokio::time::Instant::now();

    let publishing = test.publish("orders", &Order { id: 1 }).header("region", "eu");
    publishing.key("c7").delay(Duration::from_hours(5)).await.unwrap();
    test.settled().await;

    assert_eq!(before.elapsed().as_secs(), 5 * 3600);
    let calls = test.raw_calls("orders");
    assert_eq!(calls[0].headers.get_str("region"), Some("eu"));
    assert_eq!(calls[0].key.as_deref(), Some(&b"c7"[..]));
    assert_eq!(calls[0].message, r#"{"id":1}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settled_waits_for_all_that_follows() {
    let test = TestApp::start(app(|broker| {
        broker.include(confirm).workers(4);
        broker.include(mail).workers(4);
    }))
    .await
    .unwrap();

    for round in 1..=50 {
        for _ in 0..20 {
            test.publish("orders", &Order { id: 1 }).await.unwrap();
        }
        test.settled().await;

        assert_eq!(test.published::<String>("letters").len(), round * 20);
        let mailed = test.calls::<Receipt>("mail");
        assert_eq!(mailed.len(), round * 20);
        assert!(mailed.iter().all(ruststream::testing::Call::is_ok));
    }
    assert_eq!(test.raw_published("letters")[0].key.as_deref(), Some(&b"mail"[..]));
}

#[tokio::test]
async fn names_that_nobody_reads_take_in_everything() {
    let test = TestApp::start(app(|broker| {
        broker.include(confirm);
    }))
    .await
    .unwrap();
    let publisher = test.handle().publisher();
    let many: Vec<u64> = (0..20_000).collect();

    publisher.publish_many("numbers", &many).await.unwrap();
    test.settled().await;

    assert_eq!(test.published::<u64>("numbers"), many);
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_found_wherever_they_are_kept() {
    let named = app(|broker| {
        broker.include(confirm).retry(Retry::never()).dead_letter("graves");
    });
    for (app, place) in [(shop(), None), (named, Some("graves".to_owned()))] {
        let test = TestApp::start(app).await.unwrap();

        let publishing = test.publish("orders", &Order { id: 9 }).header("region", "eu");
        publishing.await.unwrap();
        test.publish_bytes("orders", *b"no order").await.unwrap();
        test.settled().await;

        let mut dead = test.dead_letters("orders");
        // What cannot be decoded is given up first, where the other is retried.
        dead.sort_by_key(|letter| letter.reason == DeadReason::Undecodable);
        assert_eq!(dead.len(), 2);
        assert_eq!(dead[0].decode::<Order>(), Order { id: 9 });
        assert_eq!(dead[0].reason, DeadReason::AttemptsExhausted);
        assert_eq!(dead[0].attempts, if place.is_none() { 3 } else { 1 });
        assert_eq!(dead[0].error, format!("attempt {} is too early", dead[0].attempts));
        assert_eq!(dead[0].headers.get_str("region"), Some("eu"));
        assert!(dead[0].headers.iter().all(|(name, _)| !name.starts_with("dead-letter")));
        assert_eq!(dead[1].payload, &b"no order"[..]);
        assert_eq!((&dead[0].destination, &dead[1].destination), (&place, &place));
        assert!(matches!(
            test.raw_calls("orders")
                .iter()
                .find(|call| call.message == "no order")
                .map(|call| &call.outcome),
            Some(CallOutcome::Undecodable(_))
        ));
        assert!(test.calls::<Order>("orders").iter().all(|call| call.message.id == 9));
    }
}

#[tokio::test(start_paused = true)]
async fn panics_are_calls_that_failed_by_their_text() {
    let test = TestApp::start(app(|broker| {
        broker
            .include(step)
            .retry(Retry::fixed(Duration::from_mins(1)).attempts(2));
    }))
    .await
    .unwrap();

    for id in [12u64, 13, 14] {
        test.publish("mines", &id).await.unwrap();
    }
    test.settled().await;

    let panics = test.panics();
    assert_eq!(panics.len(), 2);
    assert_eq!(panics[1].attempt, 2);
    assert_eq!(panics[1].error(), Some("mine 13"));
    assert_eq!(test.calls::<u64>("mines").len(), 4);
    assert_eq!(test.dead_letters("mines")[0].error, "mine 13");
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_in_hand_for_the_sake_of_order_is_waited_for() {
    let test = TestApp::start(app(|broker| {
        let orders = broker.include(confirm).ordered_by(OrderBy::key());
        orders.retry(Retry::fixed(Duration::from_hours(1)));
    }))
    .await
    .unwrap();

    for id in [3, 2] {
        test.publish("orders", &Order { id }).key("c7").await.unwrap();
    }
    test.settled().await;

    let receipts = test.published::<Receipt>("receipts");
    assert_eq!(receipts, [Receipt { order: 3 }, Receipt { order: 2 }]);
    let attempts = test
        .calls::<Order>("orders")
        .into_iter()
        .map(|call| (call.message.id, call.attempt));
    assert_eq!(attempts.collect::<Vec<_>>(), [(3, 1), (3, 2), (3, 3), (2, 1), (2, 2)]);
}

#[subscriber("events")]
async fn sort(events: &[u64]) -> Vec<Result<(), String>> {
    let judge = |event: &u64| if *event == 2 { Err("two".to_owned()) } else { Ok(()) };
    events.iter().map(judge).collect()
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_a_call_for_each_of_its_messages() {
    let test = TestApp::start(app(|broker| {
        broker.include(sort).batch(3).retry(Retry::never());
    }))
    .await
    .unwrap();

    for event in 1..=3u64 {
        test.publish("events", &event).await.unwrap();
    }
    test.settled().await;

    let calls = test.calls::<u64>("events");
    assert_eq!(
        calls.iter().map(|call| call.error()).collect::<Vec<_>>(),
        [None, Some("two"), None]
    );
    assert_eq!(test.dead_letters("sort").len(), 1);
}

#[tokio::test]
async fn a_source_becomes_a_queue_of_its_name_and_groups_each_get_a_copy() {
    #[subscriber("one")]
    async fn one(_price: u64) {}
    #[subscriber("two")]
    async fn two(_price: u64) {}
    let test = TestApp::start(app(|broker| {
        broker.include(one).source(Queue::broadcast("prices"));
        broker.include(two).source(Queue::broadcast("prices"));
        broker.include(slow).source(Queue::new("zero.*"));
    }))
    .await
    .unwrap();

    test.publish("prices", &7u64).await.unwrap();
    test.publish("zero.eu", &0u64).await.unwrap();
    test.settled().await;

    assert_eq!(test.calls::<u64>("one").len(), 1);
    assert_eq!(test.calls::<u64>("two").len(), 1);
    assert_eq!(test.calls::<u64>("prices").len(), 2);
    assert_eq!(test.calls::<u64>("zero.*").len(), 1);
}

#[tokio::test]
async fn brokers_are_apart_and_asked_by_their_label() {
    let app = app(|broker| {
        broker.include(confirm);
    })
    .with_broker(Elsewhere("farther"), |broker| {
        broker.include(mail);
    });
    let test = TestApp::start(app).await.unwrap();
    let farther = test.broker("farther");

    test.publish("orders", &Order { id: 1 }).await.unwrap();
    farther.publish("receipts", &Receipt { order: 8 }).await.unwrap();
    test.settled().await;

    assert_eq!(test.label(), "far away");
    assert_eq!(test.published::<Receipt>("receipts").len(), 1);
    assert_eq!(farther.calls::<Receipt>("receipts")[0].message, Receipt { order: 8 });
    assert_eq!(farther.published::<String>("letters"), ["order 8"]);
    assert!(test.published::<String>("letters").is_empty());
    let transcript = test.transcript();
    assert!(
        transcript.contains("[farther] the app -> letters: \"order 8\", key mail"),
        "{transcript}"
    );
}

#[tokio::test]
async fn hooks_run_as_in_real_life_and_what_they_do_is_seen() {
    let events: Arc<Mutex<Vec<&str>>> = Arc::default();
    let log = |event: &'static str| {
        let events = events.clone();
        move || events.lock().unwrap().push(event)
    };
    let (up, running, down, gone) = (log("up"), log("running"), log("down"), log("gone"));
    let app = shop()
        .on_startup(move || async move {
            up();
            Ok(())
        })
        .after_startup(move |app| async move {
            running();
            Ok(app.publisher().publish("greetings", "hello").await?)
        })
        .on_shutdown(move |app| async move {
            down();
            Ok(app.publisher().publish("greetings", "bye").await?)
        })
        .after_shutdown(move || async move {
            gone();
            Ok(())
        });
    let test = TestApp::start(app).await.unwrap();
    assert_eq!(*events.lock().unwrap(), ["up", "running"]);

    test.shutdown().await.unwrap();
    test.shutdown().await.unwrap();

    assert_eq!(*events.lock().unwrap(), ["up", "running", "down", "gone"]);
    assert_eq!(test.published::<String>("greetings"), ["hello", "bye"]);
}

#[tokio::test]
async fn an_app_that_cannot_start_says_why() {
    let wiring = TestApp::start(app(|broker| {
        broker.include(confirm).workers(0);
    }));
    assert!(wiring.await.unwrap_err().is_wiring());

    let hook = TestApp::start(shop().on_startup(|| async { Err("no settings".into()) }));
    assert!(hook.await.unwrap_err().is_hook());
}

#[tokio::test(start_paused = true)]
async fn dropped_it_stops_the_app() {
    let test = TestApp::start(shop()).await.unwrap();
    let memory = test.memory().clone();
    let publisher = test.handle().publisher();
    test.publish("orders", &Order { id: 3 }).await.unwrap();
    let handle = test.handle().clone();

    drop(test);
    while handle.health().subscriptions[0].workers > 0 {
        tokio::task::yield_now().await;
    }
    publisher.publish("orders", &Order { id: 1 }).await.unwrap();

    assert_eq!(memory.published("orders").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_not_confirmed_is_a_failure() {
    let test = TestApp::start(shop()).await.unwrap();
    test.publish("orders", &Order { id: 1 }).await.unwrap();
    test.memory().fail_next(Operation::Publish, 1, ErrorKind::Unavailable);

    test.settled().await;

    let calls = test.calls::<Order>("orders");
    assert_eq!(calls.len(), 2);
    let CallOutcome::Failed { kind, error } = &calls[0].outcome else {
        panic!("{:?}", calls[0].outcome);
    };
    assert_eq!(*kind, FailureKind::Reply);
    assert!(error.contains("not confirmed"), "{error}");
    assert_eq!(test.published::<Receipt>("receipts").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_transcript_tells_each_call_and_each_publish_in_order() {
    let test = TestApp::start(app(|broker| {
        broker
            .include(confirm)
            .retry(Retry::fixed(Duration::from_mins(90)).attempts(2))
            .dead_letter("graves");
        broker.include(slow);
        broker.include(mail);
        broker.include(step).retry(Retry::never());
    }))
    .await
    .unwrap();

    test.publish("orders", &Order { id: 2 }).key("c7").await.unwrap();
    test.settled().await;
    test.publish("slow", &5u64).delay(Duration::from_secs(1)).await.unwrap();
    test.settled().await;
    test.publish("orders", &Order { id: 3 }).await.unwrap();
    test.settled().await;
    test.publish_bytes("mines", [0xff, 0x00]).await.unwrap();
    test.settled().await;
    test.publish("mines", &13u64).await.unwrap();
    test.settled().await;
    test.publish("oders", &1u64).await.unwrap();

    let expected = "\
what happened:
        0ms  the test -> orders: {\"id\":2}, key c7
        0ms  confirm <- orders, attempt 1: {\"id\":2} => error: attempt 1 is too early; again in 1h 30m
     1h 30m  confirm <- orders, attempt 2: {\"id\":2} => replied to receipts
     1h 30m  the app -> receipts: {\"order\":2}
     1h 30m  mail <- receipts, attempt 1: {\"order\":2} => acked
     1h 30m  the app -> letters: \"order 2\", key mail
     1h 30m  the test -> slow: 5, delayed by 1s
  1h 30m 1s  slow <- slow, attempt 1: 5 => acked, after 5s
  1h 30m 6s  the test -> orders: {\"id\":3}
  1h 30m 6s  confirm <- orders, attempt 1: {\"id\":3} => error: attempt 1 is too early; again in 1h 30m
      3h 6s  confirm <- orders, attempt 2: {\"id\":3} => error: attempt 2 is too early; becomes a dead letter in `graves`, attempts-exhausted
      3h 6s  the app -> graves: {\"id\":3}
      3h 6s  the test -> mines: 0xff00 (2 bytes)
";
    let transcript = test.transcript();
    assert_eq!(
        transcript.lines().take(14).collect::<Vec<_>>(),
        expected.lines().collect::<Vec<_>>(),
        "{transcript}"
    );
    for part in [
        "step <- mines, attempt 1: 0xff00 (2 bytes) => undecodable: ",
        "; becomes a dead letter, undecodable\n",
        "step <- mines, attempt 1: 13 => panic: mine 13; becomes a dead letter, attempts-exhausted\n",
        "the test -> oders: 1 => no subscription reads it\n",
    ] {
        assert!(transcript.contains(part), "{part:?} is missing:\n{transcript}");
    }
    assert!(transcript.ends_with("still to be done:\n  nothing\n"), "{transcript}");
}

/// The text of the panic of `settled`.
async fn unsettled(test: &TestApp) -> String {
    struct CatchUnwind<F>(F);
    impl<F: Future<Output = ()> + Unpin> Future for CatchUnwind<F> {
        type Output = Option<String>;

        fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
            let inner = AssertUnwindSafe(|| std::pin::Pin::new(&mut self.0).poll(cx));
            match std::panic::catch_unwind(inner) {
                Ok(poll) => poll.map(|()| None),
                Err(panic) => std::task::Poll::Ready(panic.downcast_ref::<String>().cloned()),
            }
        }
    }
    CatchUnwind(Box::pin(test.settled())).await.expect("it does not settle")
}

#[tokio::test]
async fn what_does_not_settle_is_told_with_all_that_is_open() {
    let test = TestApp::start_paused(app(|broker| {
        broker.include(confirm).retry(Retry::fixed(Duration::from_hours(1)));
        broker.include(stuck).prefetch(1);
        broker.include(slow);
    }))
    .await
    .unwrap()
    .deadline(Duration::from_millis(50));
    assert!(test.handle().pause("slow"));
    for id in [1u64, 2] {
        test.publish("stuck", &id).await.unwrap();
    }
    test.publish("slow", &1u64).await.unwrap();

    let told = unsettled(&test).await;

    assert!(told.starts_with("not settled within 50ms, asked for at "), "{told}");
    assert!(told.contains("tests/testing.rs:"), "{told}");
    assert!(told.contains("stuck <- stuck, attempt 1: 1 => not ended\n"), "{told}");
    let open = told.split("still to be done:\n").nth(1).unwrap();
    assert_eq!(
        open,
        "  stuck: 1 in hand, 1 ready\n  slow: 1 ready\n  the subscription on slow is paused\n"
    );
}

#[tokio::test]
async fn a_delay_on_a_running_clock_is_told_with_its_time() {
    let test = TestApp::start(shop())
        .await
        .unwrap()
        .deadline(Duration::from_millis(50));
    let publishing = test.publish("orders", &Order { id: 1 });
    publishing.delay(Duration::from_mins(59)).await.unwrap();

    let told = unsettled(&test).await;

    assert!(
        told.contains("  orders: 1 delayed, the next due in 58m 59s\n"),
        "{told}"
    );
}

#[tokio::test]
async fn a_retry_without_end_is_stopped_by_the_clock_on_the_wall() {
    let test = TestApp::start_paused(app(|broker| {
        broker
            .include(confirm)
            .retry(Retry::fixed(Duration::from_hours(1)).forever());
    }))
    .await
    .unwrap()
    .deadline(Duration::from_millis(200));
    test.publish("orders", &Order { id: u64::MAX }).await.unwrap();

    let told = unsettled(&test).await;

    assert!(told.contains(" earlier calls and publishes ..\n"), "{told}");
    assert!(told.contains("  orders: 1 "), "{told}");
    assert!(told.lines().count() < 250, "{told}");
}

#[tokio::test]
async fn a_wrong_name_or_type_is_told() {
    let test = TestApp::start(shop()).await.unwrap();
    test.publish("orders", &Order { id: 1 }).await.unwrap();
    test.settled().await;

    let told_by = |ask: &dyn Fn()| {
        let panic = std::panic::catch_unwind(AssertUnwindSafe(ask)).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap()
    };
    assert_eq!(
        told_by(&|| drop(test.raw_calls("oders"))),
        "no subscription on far away reads `oders` or has a handler of that name; there are: `orders` (handler `confirm`)"
    );
    assert_eq!(
        told_by(&|| assert_eq!(test.broker("near").label(), "near")),
        "the app has no broker of the label `near`; it has `far away`"
    );
    let wrong = told_by(&|| drop(test.published::<Order>("receipts")));
    assert!(
        wrong.starts_with("the message to `receipts` is no `testing::Order`: "),
        "{wrong}"
    );
    assert!(wrong.ends_with("it is {\"order\":1}"), "{wrong}");
}

/// Runs in a process of its own, by the test below.
#[tokio::test]
#[ignore = "it fails, as the test below wants it"]
async fn fails_on_purpose() {
    let test = TestApp::start(shop()).await.unwrap();
    test.publish("orders", &Order { id: 1 }).await.unwrap();
    test.settled().await;
    assert_eq!(test.published::<Receipt>("receipts"), [Receipt { order: 2 }]);
}

#[test]
fn a_test_that_fails_prints_what_happened() {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args(["--ignored", "--exact", "fails_on_purpose"])
        .output()
        .unwrap();

    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success());
    assert!(text.contains("right: [Receipt { order: 2 }]"), "{text}");
    assert!(text.contains("what happened:\n"), "{text}");
    assert!(
        text.contains("confirm <- orders, attempt 1: {\"id\":1} => replied to receipts"),
        "{text}"
    );
    assert!(text.contains("the app -> receipts: {\"order\":1}"), "{text}");
}

#[tokio::test]
async fn settled_is_at_once_where_there_is_nothing_to_do() {
    static HOOKS: AtomicUsize = AtomicUsize::new(0);
    let test = TestApp::start(shop().after_startup(|_| async {
        HOOKS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }));
    let test = test.await.unwrap();

    test.settled().await;

    assert_eq!(HOOKS.load(Ordering::Relaxed), 1);
    assert_eq!(
        test.transcript(),
        "what happened:\n  nothing\nstill to be done:\n  nothing\n"
    );
}

/// What a transport might add to a publish.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Priority(u8);

impl TransportOptions for Priority {}

#[derive(Debug, PartialEq, Eq)]
struct Safety(&'static str);

impl TransportOptions for Safety {}

/// Sets the safety of what has a priority.
struct Careful;

impl PublishLayer for Careful {
    async fn before(&self, message: &mut Prepared) -> Result<(), TransportError> {
        if let Some(&Priority(_)) = message.options() {
            message.set_options(Safety("twice"));
        }
        Ok(())
    }
}

#[tokio::test]
async fn options_reach_the_transport_by_their_type_and_are_seen() {
    let test = TestApp::start(app(|broker| {
        broker.publish_layer(Careful);
    }))
    .await
    .unwrap();
    let publisher = test.handle().publisher();

    let urgent = publisher.publish("urgent", &1).options(Priority(3));
    urgent.options(Priority(9)).await.unwrap();
    // In the buffers of the first.
    publisher.publish("common", &2).await.unwrap();

    let urgent = test.raw_published("urgent").remove(0);
    assert_eq!(urgent.options::<Priority>(), Some(&Priority(9)));
    assert_eq!(urgent.options::<Safety>(), Some(&Safety("twice")));
    let common = test.raw_published("common").remove(0);
    assert_eq!(common.options::<Priority>(), None);
    assert_eq!(common.options::<Safety>(), None);
    let transcript = test.transcript();
    assert!(
        transcript.contains(r#"options {Priority(9), Safety("twice")}"#),
        "{transcript}"
    );
}

#[subscriber("split", reply = "receipts")]
async fn split(order: Order) -> Replies {
    Replies::from([
        Reply::new(Receipt { order: order.id }),
        Reply::new(order.id).to("lines"),
    ])
}

#[tokio::test]
async fn a_call_with_several_replies_names_where_they_went() {
    let app = RustStream::new(AppInfo::new("shop", "1.0.0")).with_broker(MemoryBroker::new(), |broker| {
        broker.include(split);
    });
    let test = TestApp::start_paused(app).await.unwrap();

    test.publish("split", &Order { id: 7 }).await.unwrap();
    test.settled().await;

    let calls = test.calls::<Order>("split");
    let names = ["receipts", "lines"].map(str::to_owned).to_vec();
    assert_eq!(calls[0].outcome, CallOutcome::RepliedTo(names));
    assert!(calls[0].is_ok());
    assert_eq!(test.published::<u64>("lines"), [7]);
}

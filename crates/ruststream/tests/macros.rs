//! What `#[subscriber]` and `#[ruststream::app]` make of functions.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex};

use ruststream::handler::{Call, Definition, Extract, ExtractBatch, FromState, Outcome, Single, Subscriber};
use ruststream::prelude::*;
use ruststream::publish::Publisher;
use ruststream::transport::DeadReason;

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

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    order: u64,
}

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

/// The state of the apps here: a book that handlers write into.
#[derive(Debug, Clone, Default)]
struct Book {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Book {
    fn write(&self, line: impl Into<String>) {
        self.lines.lock().expect("no writer panicked").push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no writer panicked").clone()
    }
}

/// A part of the state.
struct Pages(usize);

impl FromState<Book> for Pages {
    fn from_state(book: &Book) -> Self {
        Self(book.lines().len())
    }
}

/// Borrows from the headers of the message.
struct Sender<'a>(&'a str);

impl<'a, S: Send + Sync> Extract<'a, S> for Sender<'a> {
    type Rejection = HandlerOutcome;

    async fn extract(call: Call<'a, S>) -> Result<Self, HandlerOutcome> {
        tokio::task::yield_now().await;
        let name = call.incoming().headers().get_str("sender");
        Ok(Self(name.ok_or(HandlerOutcome::dead_letter("no sender"))?))
    }
}

impl<'a, S: Send + Sync> ExtractBatch<'a, S> for Sender<'a> {
    type Rejection = HandlerOutcome;

    async fn extract_batch(calls: &[Call<'a, S>]) -> Result<Self, HandlerOutcome> {
        Self::extract(calls[0]).await
    }
}

/// The subscription that a batch is of.
struct Source<'a>(&'a str);

impl<'a, S: Send + Sync> ExtractBatch<'a, S> for Source<'a> {
    type Rejection = std::convert::Infallible;

    async fn extract_batch(calls: &[Call<'a, S>]) -> Result<Self, Self::Rejection> {
        Ok(Self(calls[0].source()))
    }
}

/// Runs an app of `mount` on a broker, and hands both to `test`; the lines that were written once all is settled.
async fn lines_of(
    mount: impl FnOnce(&mut ruststream::app::BrokerScope<'_, MemoryBroker, Book>),
    test: impl AsyncFnOnce(&MemoryBroker, Publisher),
) -> Vec<String> {
    let (book, broker) = (Book::default(), MemoryBroker::new());
    let running = RustStream::new(AppInfo::new("tests", "1.0.0"))
        .state(book.clone())
        .with_broker(broker.clone(), mount)
        .start()
        .await
        .expect("the app starts");
    test(&broker, running.publisher()).await;
    running.shutdown().await.expect("the app stops");
    book.lines()
}

mod definitions {
    use super::*;

    const NAME: &str = "orders.constant";

    /// Confirms an order.
    ///
    ///     let indented = 1;
    #[subscriber("orders", reply = "receipts")]
    async fn confirm(order: Order) -> Receipt {
        Receipt { order: order.id }
    }

    #[subscriber(NAME)]
    async fn collect(orders: &[Order]) {
        drop(orders.to_vec());
    }

    #[subscriber(concat!("orders", ".", "raw"), reply = NAME,)]
    async fn r#loop(payload: &[u8]) -> usize {
        payload.len()
    }

    #[test]
    fn say_what_is_written_on_the_function() {
        let text = "Confirms an order.\n\n    let indented = 1;";
        let expected = Definition::new("confirm", "orders").with_reply("receipts");
        assert_eq!(Subscriber::<()>::definition(&confirm), expected.with_description(text));
        assert_eq!(
            Subscriber::<()>::definition(&collect),
            Definition::new("collect", "orders.constant").with_batch()
        );
        assert_eq!(
            Subscriber::<()>::definition(&r#loop),
            Definition::new("loop", "orders.raw").with_reply("orders.constant")
        );
    }
}

mod messages {
    use super::*;

    #[subscriber("owned")]
    async fn owned(mut order: Order, State(book): State<Book>) {
        order.note.push('!');
        book.write(order.note);
    }

    #[subscriber("taken-apart")]
    async fn taken_apart(Order { id, .. }: Order, book: State<Book>) {
        book.write(format!("{id}"));
    }

    #[subscriber("lent")]
    async fn lent(order: &Order, State(book): State<Book>) {
        tokio::task::yield_now().await;
        book.write(&*order.note);
    }

    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        note: Cow<'a, str>,
    }

    #[subscriber("borrowed")]
    async fn borrowed(event: Event<'_>, State(book): State<Book>) {
        tokio::task::yield_now().await;
        book.write(event.note);
    }

    #[subscriber("text")]
    async fn text(words: &str, State(book): State<Book>) {
        book.write(words);
    }

    #[subscriber("bytes")]
    async fn bytes(payload: &[u8], State(book): State<Book>) {
        book.write(String::from_utf8_lossy(payload));
    }

    #[subscriber("pair")]
    async fn pair((left, right): (u8, u8), State(book): State<Book>) {
        book.write(format!("{}", left + right));
    }

    #[tokio::test]
    async fn come_in_the_form_that_the_parameter_asks_for() {
        let lines = lines_of(
            |broker| {
                broker.include(owned);
                broker.include(taken_apart);
                broker.include(lent);
                broker.include(borrowed);
                broker.include(text);
                broker.include(bytes);
                broker.include(pair);
            },
            async |broker, publisher| {
                for name in ["owned", "taken-apart", "lent", "borrowed"] {
                    publisher.publish(name, &order(7)).await.unwrap();
                    broker.settled(name, 1).await;
                }
                publisher.publish("text", "a \"word\"").await.unwrap();
                broker.settled("text", 1).await;
                publisher.publish_bytes("bytes", b"{ no json".to_vec()).await.unwrap();
                broker.settled("bytes", 1).await;
                publisher.publish("pair", &(3, 4)).await.unwrap();
                broker.settled("pair", 1).await;
            },
        )
        .await;

        assert_eq!(
            lines,
            [
                "order \"7\"!",
                "7",
                "order \"7\"",
                "order \"7\"",
                "a \"word\"",
                "{ no json",
                "7"
            ]
        );
    }

    #[tokio::test]
    async fn that_cannot_be_decoded_do_not_reach_the_function() {
        let lines = lines_of(
            |broker| {
                broker.include(owned);
            },
            async |broker, publisher| {
                publisher.publish_bytes("owned", b"{".to_vec()).await.unwrap();
                broker.settled("owned", 1).await;
                assert_eq!(broker.dead_letters("owned")[0].letter.reason, DeadReason::Undecodable);
            },
        )
        .await;

        assert!(lines.is_empty());
    }
}

mod extractors {
    use super::*;

    #[subscriber("orders")]
    async fn read(
        order: Order,
        Sender(sender): Sender<'_>,
        context: Context<'_>,
        State(Pages(pages)): State<Pages>,
        State(book): State<Book>,
    ) {
        book.write(format!("{} {sender} {} {pages}", order.id, context.source()));
    }

    #[tokio::test]
    async fn are_drawn_from_the_call() {
        let lines = lines_of(
            |broker| {
                broker.include(read);
            },
            async |broker, publisher| {
                publisher
                    .publish("orders", &order(1))
                    .header("sender", "ann")
                    .await
                    .unwrap();
                publisher
                    .publish("orders", &order(2))
                    .header("sender", "bob")
                    .await
                    .unwrap();
                broker.settled("orders", 2).await;
            },
        )
        .await;

        assert_eq!(lines, ["1 ann orders 0", "2 bob orders 1"]);
    }

    #[tokio::test]
    async fn that_reject_a_call_decide_its_outcome() {
        let lines = lines_of(
            |broker| {
                broker.include(read);
            },
            async |broker, publisher| {
                publisher.publish("orders", &order(1)).await.unwrap();
                broker.settled("orders", 1).await;
                let dead = &broker.dead_letters("orders")[0].letter;
                assert_eq!((dead.reason, &*dead.error), (DeadReason::Rejected, "no sender"));
            },
        )
        .await;

        assert!(lines.is_empty());
    }
}

mod returns {
    use super::*;

    type Checked<T> = Result<T, Refused>;

    mod alias {
        pub(super) type Result<T> = std::result::Result<T, super::Refused>;
    }

    #[subscriber("outcome")]
    async fn outcome(_order: Order) -> HandlerOutcome {
        HandlerOutcome::drop()
    }

    #[subscriber("outcome-or-error")]
    async fn outcome_or_error(order: Order) -> Result<HandlerOutcome, Refused> {
        if order.id == 0 {
            Err(Refused)
        } else {
            Ok(HandlerOutcome::ack())
        }
    }

    #[subscriber("aliased")]
    async fn aliased(_order: Order) -> alias::Result<()> {
        Err(Refused)
    }

    #[subscriber("unrecognised")]
    async fn unrecognised(_order: Order) -> Checked<()> {
        Err(Refused)
    }

    #[tokio::test]
    async fn become_outcomes() {
        lines_of(
            |broker| {
                broker.include(outcome);
                broker.include(outcome_or_error).retry(Retry::never());
                broker.include(aliased).retry(Retry::never());
                broker.include(unrecognised).retry(Retry::never());
            },
            async |broker, publisher| {
                for (name, dead) in [
                    ("outcome", 0),
                    ("outcome-or-error", 1),
                    ("aliased", 1),
                    ("unrecognised", 1),
                ] {
                    publisher.publish(name, &order(0)).await.unwrap();
                    broker.settled(name, 1).await;
                    let letters = broker.dead_letters(name);
                    assert_eq!(letters.len(), dead, "{name}");
                    assert!(letters.iter().all(|one| one.letter.error == "refused"), "{name}");
                }
            },
        )
        .await;
    }

    #[subscriber("orders", reply = "receipts")]
    async fn confirm(order: Order) -> Result<Receipt, Refused> {
        if order.id == 0 {
            Err(Refused)
        } else {
            Ok(Receipt { order: order.id })
        }
    }

    #[subscriber("lent-orders", reply = "notes")]
    async fn lend(order: &Order) -> &str {
        &order.note
    }

    #[subscriber("any-orders", reply = "anything")]
    async fn anything(order: Order) -> impl Serialize {
        (order.id, order.note)
    }

    #[tokio::test]
    async fn are_sent_as_replies() {
        lines_of(
            |broker| {
                broker.include(confirm).retry(Retry::never());
                broker.include(lend);
                broker.include(anything);
            },
            async |broker, publisher| {
                for name in ["orders", "lent-orders", "any-orders"] {
                    publisher.publish(name, &order(7)).await.unwrap();
                    broker.settled(name, 1).await;
                }
                publisher.publish("orders", &order(0)).await.unwrap();
                broker.settled("orders", 2).await;

                for (name, expected) in [
                    ("receipts", r#"{"order":7}"#),
                    ("notes", r#""order \"7\"""#),
                    ("anything", r#"[7,"order \"7\""]"#),
                ] {
                    let replies = broker.published(name);
                    assert_eq!(replies.len(), 1, "{name}");
                    assert_eq!(replies[0].payload, expected);
                }
                assert_eq!(broker.dead_letters("orders").len(), 1);
            },
        )
        .await;
    }
}

mod batches {
    use super::*;

    #[subscriber("each")]
    async fn each(orders: &[Order], State(book): State<Book>) -> Vec<Result<(), Refused>> {
        book.write(format!("{:?}", orders.iter().map(|order| order.id).collect::<Vec<_>>()));
        orders
            .iter()
            .map(|order| if order.id == 2 { Err(Refused) } else { Ok(()) })
            .collect()
    }

    #[subscriber("all")]
    async fn all(orders: &[Order]) -> Result<(), Refused> {
        if orders.len() == 3 { Err(Refused) } else { Ok(()) }
    }

    #[subscriber("too-few")]
    async fn too_few(_orders: &[Order]) -> Vec<HandlerOutcome> {
        vec![HandlerOutcome::ack()]
    }

    #[subscriber("payloads")]
    async fn payloads(payloads: &[&[u8]], State(book): State<Book>, Source(name): Source<'_>) {
        book.write(format!("{} of {name}", payloads.concat().escape_ascii()));
    }

    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        note: Cow<'a, str>,
    }

    #[subscriber("borrowed")]
    async fn borrowed(events: &[Event<'_>], State(book): State<Book>) -> HandlerOutcome {
        book.write(events.iter().map(|event| &*event.note).collect::<String>());
        HandlerOutcome::ack()
    }

    #[subscriber("unreachable")]
    async fn unreachable(orders: &[Order], Sender(_sender): Sender<'_>, State(book): State<Book>) {
        book.write(format!("{}", orders.len()));
    }

    /// Three orders with something between them that is none.
    async fn publish(publisher: &Publisher, name: &'static str) {
        for id in 1..=3 {
            publisher.publish(name, &order(id)).await.expect("there is room");
            if id == 1 {
                publisher.publish_bytes(name, *b"{").await.expect("there is room");
            }
        }
    }

    /// What became of each dead letter: how it began, and why it ended.
    fn dead(broker: &MemoryBroker, name: &str) -> Vec<(String, DeadReason, String)> {
        let mut letters: Vec<_> = broker
            .dead_letters(name)
            .into_iter()
            .map(|dead| {
                let payload: String = String::from_utf8_lossy(&dead.payload).chars().take(7).collect();
                (payload, dead.letter.reason, dead.letter.error)
            })
            .collect();
        letters.sort_by(|left, right| left.0.cmp(&right.0));
        letters
    }

    async fn settled_batch(
        broker: &MemoryBroker,
        publisher: &Publisher,
        name: &'static str,
    ) -> Vec<(String, DeadReason, String)> {
        publish(publisher, name).await;
        broker.settled(name, 4).await;
        dead(broker, name)
    }

    fn mounted<H: Subscriber<Book>>(
        handler: H,
    ) -> impl FnOnce(&mut ruststream::app::BrokerScope<'_, MemoryBroker, Book>) {
        |broker| {
            broker
                .include(handler)
                .batch(4)
                .batch_age(Duration::from_mins(1))
                .retry(Retry::never());
        }
    }

    #[tokio::test]
    async fn map_outcomes_back_around_what_cannot_be_decoded() {
        let lines = lines_of(mounted(each), async |broker, publisher| {
            let dead = settled_batch(broker, &publisher, "each").await;
            assert_eq!(dead.len(), 2);
            assert_eq!((&*dead[0].0, dead[0].1), ("{", DeadReason::Undecodable));
            assert_eq!((&*dead[1].0, &*dead[1].2), ("{\"id\":2", "refused"));
        })
        .await;

        assert_eq!(lines, ["[1, 2, 3]"]);
    }

    #[tokio::test]
    async fn keep_what_cannot_be_decoded_apart_from_one_outcome_for_all() {
        lines_of(mounted(all), async |broker, publisher| {
            let dead = settled_batch(broker, &publisher, "all").await;
            assert_eq!(dead.len(), 4);
            assert_eq!(dead[0].1, DeadReason::Undecodable);
            assert!(dead[1..].iter().all(|(_, _, error)| error == "refused"));
        })
        .await;
    }

    #[tokio::test]
    async fn with_the_wrong_number_of_outcomes_fail() {
        lines_of(mounted(too_few), async |broker, publisher| {
            let dead = settled_batch(broker, &publisher, "too-few").await;
            assert_eq!(dead.len(), 4);
            assert_eq!(dead[0].1, DeadReason::Undecodable);
            for (_, _, error) in &dead[1..] {
                assert!(error.contains("1 outcomes for 3 messages"), "{error}");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn of_bytes_and_of_borrowed_messages_are_lent() {
        let lines = lines_of(mounted(payloads), async |broker, publisher| {
            for payload in [&b"a"[..], b"{", b"\xff", b""] {
                publisher.publish_bytes("payloads", payload).await.unwrap();
            }
            broker.settled("payloads", 4).await;
        })
        .await;
        assert_eq!(lines, [r"a{\xff of payloads"]);

        let lines = lines_of(mounted(borrowed), async |broker, publisher| {
            publish(&publisher, "borrowed").await;
            broker.settled("borrowed", 4).await;
        })
        .await;
        assert_eq!(lines, ["order \"1\"order \"2\"order \"3\""]);
    }

    #[tokio::test]
    async fn with_nothing_to_decode_or_extract_do_not_reach_the_function() {
        let lines = lines_of(mounted(each), async |broker, publisher| {
            for _ in 0..4 {
                publisher.publish_bytes("each", b"{".to_vec()).await.unwrap();
            }
            broker.settled("each", 4).await;
            assert!(
                dead(broker, "each")
                    .iter()
                    .all(|dead| dead.1 == DeadReason::Undecodable)
            );
        })
        .await;
        assert!(lines.is_empty());

        let lines = lines_of(mounted(unreachable), async |broker, publisher| {
            let dead = settled_batch(broker, &publisher, "unreachable").await;
            assert!(dead.iter().all(|dead| dead.1 == DeadReason::Rejected));
        })
        .await;
        assert!(lines.is_empty());
    }
}

mod functions {
    use super::*;

    #[subscriber("orders", reply = "receipts")]
    #[must_use]
    #[expect(clippy::too_many_arguments, reason = "one for each kind")]
    #[cfg(not(any()))]
    pub(super) async fn busy(
        order: Order,
        _a: State<Book>,
        _b: State<Book>,
        _c: State<Book>,
        _d: State<Book>,
        _e: State<Book>,
        _f: State<Book>,
        _g: State<Book>,
    ) -> Receipt {
        Receipt { order: order.id }
    }

    #[subscriber("absent")]
    #[cfg(any())]
    async fn absent(_order: Missing) {}

    #[tokio::test]
    async fn are_called_without_an_app() {
        let book = || State(Book::default());
        let receipt = busy::call(order(7), book(), book(), book(), book(), book(), book(), book()).await;
        assert_eq!(receipt, Receipt { order: 7 });
    }

    #[derive(Deserialize)]
    struct Big {
        numbers: [u64; 32],
    }

    #[subscriber("big")]
    async fn big(big: Big, Sender(sender): Sender<'_>, State(book): State<Book>) {
        book.write(format!("{sender} {}", big.numbers.len()));
    }

    /// A call keeps its message in one place, whatever it waits for.
    #[test]
    fn hold_a_message_once() {
        fn size<'a, S, H: Single<S>, F>(_: &'a H, _: impl FnOnce(&'a H, Call<'a, S>) -> F) -> usize
        where
            S: 'static,
            F: Future<Output = Outcome>,
        {
            size_of::<F>()
        }

        let size = size::<Book, _, _>(&big, |handler, call| handler.call(call));
        assert!(size < 2 * size_of::<Big>() + size_of::<Call<'_, Book>>(), "{size}");
    }
}

mod apps {
    use super::*;

    #[subscriber("orders")]
    async fn confirm(order: Order, State(limit): State<u64>) -> Result<(), Refused> {
        if order.id > limit { Err(Refused) } else { Ok(()) }
    }

    mod plain {
        use super::*;

        #[ruststream::app]
        pub(super) fn app() -> RustStream {
            let builder = RustStream::new(AppInfo::new("plain", "1.0.0")).state(7u64);
            if builder.type_id() == ().type_id() {
                return builder;
            }
            builder.with_broker(MemoryBroker::new(), |broker| {
                broker.include(confirm);
            })
        }
    }

    mod finished {
        use super::*;

        #[ruststream::app]
        pub(super) async fn service() -> RustStream {
            tokio::task::yield_now().await;
            plain::app()
        }
    }

    mod fallible {
        use super::*;

        #[ruststream::app]
        pub(super) fn app() -> Result<RustStream, Box<dyn std::error::Error>> {
            let limit: u64 = "seven".parse()?;
            Ok(RustStream::new(AppInfo::new("fallible", "1.0.0")).state(limit))
        }
    }

    mod fallible_and_async {
        use super::*;

        #[ruststream::app]
        pub(super) async fn app() -> std::io::Result<RustStream> {
            let limit = tokio::task::spawn(async { 7u64 }).await?;
            Ok(RustStream::new(AppInfo::new("waited", "1.0.0"))
                .state(limit)
                .with_broker(MemoryBroker::new(), |broker| {
                    broker.include(confirm);
                }))
        }
    }

    use std::any::Any;

    #[tokio::test]
    async fn are_built_by_their_function() {
        assert_eq!(plain::app().check().unwrap().len(), 1);
        assert_eq!(finished::service().await.check().unwrap().len(), 1);
        assert_eq!(fallible_and_async::app().await.unwrap().info().name(), "waited");
        assert!(fallible::app().unwrap_err().to_string().contains("invalid digit"));
    }
}

//! The macros of RustStream: `#[subscriber]`, `#[ruststream::app]` and `#[derive(Message)]`. Use them through the `ruststream` crate; `#[derive(Inbox)]` is of
//! `ruststream-sqlx`.

mod app;
mod destination;
mod inbox;
mod message;
mod subscriber;
mod types;

use proc_macro::TokenStream;

/// Makes an `async fn` a handler with its subscription, to be mounted with `broker.include(confirm)`.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Debug, Serialize, Deserialize)]
/// struct Order {
///     id: u64,
///     cents: i64,
/// }
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Receipt {
///     order: u64,
/// }
///
/// #[derive(Clone)]
/// struct Shop {
///     limit: i64,
/// }
///
/// /// Charges an order and answers with its receipt.
/// #[subscriber("orders", reply = "receipts")]
/// async fn confirm(order: Order, State(shop): State<Shop>) -> Result<Receipt, String> {
///     if order.cents > shop.limit {
///         return Err(format!("{} cents are above the limit", order.cents));
///     }
///     Ok(Receipt { order: order.id })
/// }
///
/// let app = RustStream::new(AppInfo::new("orders", "1.0.0"))
///     .state(Shop { limit: 10_000 })
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.include(confirm).workers(8);
///     })
///     .build();
/// assert!(app.check().is_ok());
///
/// // A unit test needs no app: it calls the function itself.
/// # tokio_test(async {
/// let receipt = confirm::call(Order { id: 7, cents: 950 }, State(Shop { limit: 1_000 })).await;
/// assert_eq!(receipt, Ok(Receipt { order: 7 }));
/// # });
/// # fn tokio_test(test: impl Future<Output = ()>) {
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     assert!(std::pin::pin!(test).poll(&mut context).is_ready());
/// # }
/// ```
///
/// # What the function becomes
///
/// A unit struct of the same name, visibility and doc comment, which can be included in every app whose state has what the
/// parameters ask for. The function itself is its associated function `call`. Other attributes (`#[tracing::instrument]`,
/// `#[expect(..)]`) stay with the function; `#[cfg]` and `#[allow(..)]` hold for both.
///
/// Within the function, its name is free for parameters and variables. Elsewhere in the module, as with every unit struct, no
/// `let` and no parameter can take it.
///
/// # Settings
///
/// | setting | meaning |
/// | --- | --- |
/// | `"orders"` | what it subscribes to; first, and always there |
/// | `reply = "receipts"` | where the value that the function returns is sent, unless the message asks for another place by its header `reply-to`; the message is acked once the broker has confirmed it |
/// | `reply` | the value is sent where the message asks for; one that asks for nothing is handled without a reply |
///
/// Each is a string, or a constant of type `&'static str`. How a subscription is run (workers, retries, time-out, dead
/// letters) is set where the handler is included.
///
/// # The message
///
/// The first parameter is the message. Which form it has is told by how its type is written:
///
/// | parameter | what it is given |
/// | --- | --- |
/// | `order: Order` | the decoded message; every pattern does, as in `Order { id, .. }: Order` |
/// | `event: Event<'_>` | the decoded message, which borrows from the payload |
/// | `event: OrderEvent` | one of several types of message: an enum with serde's `tag`, or with `#[derive(Message)]` |
/// | `Proto(order): Proto<Order>` | a protobuf message (feature `prost`) |
/// | `Valid(order): Valid<Order>` | a message that keeps its own rules (feature `garde`) |
/// | `order: &Order` | the decoded message, lent |
/// | `text: &str` | a decoded text, lent |
/// | `payload: &[u8]` | the payload as it came, whatever its codec |
/// | `order: Envelope<'_, Order>` | the decoded message with its headers, key and attempt |
/// | `orders: &[Order]` | a batch of decoded messages |
/// | `payloads: &[&[u8]]` | a batch of payloads as they came |
///
/// A message that cannot be decoded never reaches the function: it becomes a dead letter, where nothing else is set. In a
/// batch that holds for it alone, and the others are handled without it.
///
/// # The other parameters
///
/// Extractors, in any order: `State<T>`, `Headers<T>`, `&HeaderMap`, `Out<T>`, `Context<'_>`, `Extension<T>`, `CancellationToken`, or a type of yours that implements
/// `ruststream::handler::Extract`. They are drawn in their order, before the message is decoded; a rejection ends the call.
///
/// A batch handler takes what is the same for all its messages: `State<T>`, `Out<T>`, `CancellationToken`, or a type of yours that
/// implements `ruststream::handler::ExtractBatch`. What differs from message to message comes with the messages:
/// `&[Envelope<'_, Reading>]`.
///
/// # What it returns
///
/// | handler | returns |
/// | --- | --- |
/// | of one message | `()`, `HandlerOutcome`, or a `Result` of those |
/// | of one message, with `reply` | the reply, or a `Result` of it |
/// | of a batch | `()`, `HandlerOutcome`, a `Vec` with one outcome or `Result` for each message, or a `Result` of those |
///
/// A reply implements `Serialize`, or is a `Proto<T>`. The error of a `Result` is anything that implements `Display`, whose text is kept, or a
/// `HandlerOutcome`. A return type whose last segment is `Result` counts as one.
///
/// ```
/// use ruststream::prelude::*;
///
/// #[subscriber("readings")]
/// async fn store(readings: &[i64]) -> Vec<Result<(), String>> {
///     let checked = |reading: &i64| match reading {
///         ..0 => Err(format!("{reading} is below zero")),
///         _ => Ok(()),
///     };
///     readings.iter().map(checked).collect()
/// }
///
/// #[subscriber("uploads")]
/// async fn archive(payload: &[u8]) -> HandlerOutcome {
///     if payload.is_empty() { HandlerOutcome::drop() } else { HandlerOutcome::ack() }
/// }
/// ```
#[proc_macro_attribute]
pub fn subscriber(settings: TokenStream, item: TokenStream) -> TokenStream {
    subscriber::expand(settings.into(), &item.into()).into()
}

/// Says of a type of message what `Serialize` and `Deserialize` do not: where it is published, and by which header the variants of
/// an enum are told apart.
///
/// # Where it is published
///
/// `#[message(destination = "orders")]`, on a struct or an enum, implements `ruststream::publish::Addressed`, so that `send` takes the
/// message there. Names in braces are fields of the struct, which implement `Display`: that they are there is checked here,
/// and a value that would lead elsewhere is refused when the message is published. A constant of type `&'static str` does, too.
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Serialize, Deserialize, Message)]
/// #[message(destination = "orders.{region}")]
/// struct Order {
///     id: u64,
///     region: String,
/// }
///
/// #[subscriber("carts")]
/// async fn order(id: u64, orders: Out<Order>) -> Result<(), PublishError> {
///     orders.send(&Order { id, region: "eu".to_owned() }).await
/// }
/// ```
///
/// # Several types of message
///
/// `#[message(header = "kind")]` makes an enum the message of a handler, its variants told apart by that header.
///
/// A variant holds one message, which is read as it would be by itself, or nothing. It is for one value of the header: the one
/// in `#[message("…")]`, or else its own name. One variant may be for all other messages, `#[message(other)]`; without it,
/// a message with another value, or without the header, is undecodable. To publish such messages, publish what is in the
/// variants, with the header: `publisher.publish("orders", &placed).header("kind", "placed")`.
///
/// Where the payload itself tells the types apart, nothing of this is needed: `#[derive(Deserialize)]` with
/// `#[serde(tag = "kind")]` reads such an enum.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Deserialize)]
/// struct Placed<'a> {
///     #[serde(borrow)]
///     customer: &'a str,
/// }
///
/// #[derive(Message)]
/// #[message(header = "kind")]
/// enum OrderEvent<'a> {
///     #[message("order.placed")]
///     Placed(Placed<'a>),
///     #[message("order.cancelled")]
///     Cancelled(u64),
///     #[message(other)]
///     Other,
/// }
///
/// #[subscriber("orders")]
/// async fn follow(event: OrderEvent<'_>) {
///     match event {
///         OrderEvent::Placed(Placed { customer }) => println!("an order of {customer}"),
///         OrderEvent::Cancelled(id) => println!("order {id} is cancelled"),
///         OrderEvent::Other => {}
///     }
/// }
/// ```
#[proc_macro_derive(Message, attributes(message))]
pub fn message(input: TokenStream) -> TokenStream {
    message::expand(&syn::parse_macro_input!(input as syn::DeriveInput)).into()
}

/// Says which column of a table of the user's own is for what, so that it can be read as a queue by `ruststream-sqlx`, which has it under
/// the name `Inbox` and tells of the roles at `InboxTable`.
#[proc_macro_derive(Inbox, attributes(inbox))]
pub fn inbox(input: TokenStream) -> TokenStream {
    inbox::expand(&syn::parse_macro_input!(input as syn::DeriveInput)).into()
}

/// Makes a function that builds the app a program: writes its `main`, with the commands `run` and `check`, `--help` and
/// `--version`.
///
/// The function stays what it is, so that tests can call it. Its body may end in the builder, which becomes the `RustStream`
/// that the function answers. It may be `async`, and it may return a `Result` whose error implements `Display`: the program
/// then prints the error and ends with exit code 1. It takes no parameters and the attribute no arguments.
///
/// It stands at the root of a program (`src/main.rs`), once, under any name but `main`. A program with a command line of its
/// own needs no macro: it calls `RustStream::run`.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[subscriber("greetings")]
/// async fn greet(name: String) {
///     println!("hello, {name}");
/// }
///
/// #[ruststream::app]
/// fn app() -> RustStream {
///     RustStream::new(AppInfo::new("greeter", env!("CARGO_PKG_VERSION")))
///         .with_broker(MemoryBroker::new(), |broker| {
///             broker.include(greet).workers(4);
///         })
/// }
/// # assert!(app().check().is_ok());
/// ```
///
/// With settings that may be missing:
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Clone)]
/// struct Shop {
///     limit: u64,
/// }
///
/// # #[subscriber("orders")]
/// # async fn confirm(order: u64, State(shop): State<Shop>) -> Result<(), String> {
/// #     if order > shop.limit { Err("too big".to_owned()) } else { Ok(()) }
/// # }
/// #
/// #[ruststream::app]
/// async fn app() -> Result<RustStream, Box<dyn std::error::Error>> {
///     let limit = std::env::var("ORDER_LIMIT")?.parse()?;
///     Ok(RustStream::new(AppInfo::new("orders", "1.0.0"))
///         .state(Shop { limit })
///         .with_broker(MemoryBroker::new(), |broker| {
///             broker.include(confirm);
///         }))
/// }
/// ```
#[proc_macro_attribute]
pub fn app(arguments: TokenStream, item: TokenStream) -> TokenStream {
    app::expand(&arguments.into(), &item.into()).into()
}

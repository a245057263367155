//! Testing a service as a whole: the finished app runs in process, and the test looks on.
//!
//! ```toml
//! [dev-dependencies]
//! ruststream = { version = "0.1", features = ["testing"] }
//! ```
//!
//! [`TestApp`] takes the app as it is, puts the in-process broker in the place of each of its brokers, and starts it. State,
//! handlers, layers, retries, dead letters, order, hooks and shutdown are those of real life; the service is not touched. The
//! test publishes, waits until all that this caused is done, and looks at what happened:
//!
//! ```
//! use ruststream::prelude::*;
//! use ruststream::testing::TestApp;
//!
//! #[derive(Debug, Serialize, Deserialize)]
//! struct Order {
//!     id: u64,
//! }
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! struct Receipt {
//!     order: u64,
//! }
//!
//! #[subscriber("orders", reply = "receipts")]
//! async fn confirm(order: Order, context: Context<'_>) -> Result<Receipt, String> {
//!     if context.attempt() < 3 {
//!         return Err("the bank is closed".to_owned());
//!     }
//!     Ok(Receipt { order: order.id })
//! }
//!
//! fn app() -> RustStream {
//!     RustStream::new(AppInfo::new("shop", "1.0.0"))
//!         .with_broker(MemoryBroker::new(), |broker| {
//!             broker.include(confirm).retry(Retry::fixed(Duration::from_hours(1)));
//!         })
//!         .build()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() { let _ = confirms_once_the_bank_is_open().await; }
//! # /*
//! #[tokio::test]
//! # */
//! async fn confirms_once_the_bank_is_open() -> Result<(), Box<dyn std::error::Error>> {
//!     let test = TestApp::start_paused(app()).await?;
//!
//!     test.publish("orders", &Order { id: 7 }).await?;
//!     test.settled().await;
//!
//!     assert_eq!(test.published::<Receipt>("receipts"), [Receipt { order: 7 }]);
//!     let calls = test.calls::<Order>("orders");
//!     assert_eq!(calls.len(), 3);
//!     assert_eq!(calls[0].error(), Some("the bank is closed"));
//!     Ok(())
//! }
//! ```
//!
//! # When a test fails
//!
//! Any assertion will do: where a test panics, its [`TestApp`] prints what did happen, each call with its outcome and each
//! publish, in their order, and what is still to be done. [`TestApp::transcript`] answers the same text.
//!
//! # Time
//!
//! Everything goes by tokio's clock. Where that is stopped, it jumps to the next thing to happen as soon as all tasks wait, so
//! an hour of backoff takes no time. [`TestApp::start_paused`] stops it, and so does `#[tokio::test(start_paused = true)]`, which
//! needs tokio's feature `test-util`; both need the current-thread runtime that `#[tokio::test]` makes. A service that does real
//! I/O with time-outs of its own is better tested by [`TestApp::start`]: on a stopped clock such a time-out passes at once.
//!
//! # A handler alone
//!
//! A unit test of a handler needs no app: `#[subscriber]` keeps the function as `call`.
//!
//! ```
//! use ruststream::prelude::*;
//!
//! #[subscriber("numbers", reply = "squares")]
//! async fn square(number: u64) -> u64 {
//!     number * number
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! assert_eq!(square::call(3).await, 9);
//! # }
//! ```

mod app;
mod broker;
mod clock;
mod journal;
mod observer;
mod record;
mod transcript;
mod transport;

pub use app::TestApp;
pub use broker::TestBroker;
pub use record::{Call, CallOutcome, DeadLetter, Message};

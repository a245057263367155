//! What the suite does for every scenario: it runs the loops in turns, counts their messages and judges their times.
//!
//! A transport implements [`Transport`] and lists its [`Scenario`]s; a scenario's loops are async functions of a [`Trial`]. The
//! transport's bench binary is one line, [`main`].

mod arguments;
mod calibration;
mod judge;
mod program;
mod progress;
mod round_trip;
mod rounds;
mod scenario;
mod trial;

use std::error::Error;
use std::future::Future;

pub use calibration::STEP;
pub use program::main;
pub use round_trip::{Command, round_trip};
pub use scenario::Scenario;
pub use trial::{Tally, Trial};

use crate::results::{Bound, Server};

/// Whatever a loop fails with.
pub type Failed = Box<dyn Error + Send + Sync>;

/// One transport: where its scenarios run.
pub trait Transport: Send + Sync + Sized + 'static {
    /// The first part of every id.
    const NAME: &'static str;
    /// What a row is bound by that waits for round trips.
    const BOUND: Bound;
    /// The client libraries whose versions the results say.
    const CLIENTS: &'static [&'static str];

    /// All its rows, in the order of the page.
    fn scenarios() -> Vec<Scenario<Self>>;

    /// Finds or starts the server.
    fn open() -> impl Future<Output = Result<Self, Failed>> + Send;

    /// What the server says of itself, and its round trips; none where there is no server.
    fn server(&self) -> impl Future<Output = Result<Option<Server>, Failed>> + Send;
}

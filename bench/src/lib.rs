//! The benchmark suite of RustStream: how fast it is beside the same work written by hand, and what one message costs.
//!
//! `cargo xtask bench` runs it and writes `docs/benchmarks/results.json`, from which the pages are drawn. [`results`] is the
//! schema of that file.
//!
//! # How a row is measured
//!
//! A **scenario** is a row of the results: several **loops** that do the same work.
//!
//! | loop | what it is |
//! | --- | --- |
//! | `bare` | written by hand on the bare client: claims one, handles it, settles it, on a connection held by each task |
//! | `tuned` | the best that a person could write by hand: claims and settles in batches |
//! | `crate` | the transport crate driven by hand, without the runtime |
//! | `service` | what a user writes: a handler and an app |
//! | `none`, `hand`, `crate` | an outbox: an app without one, one written by hand, the crate's |
//!
//! - **Each loop runs as a task of a multi-thread runtime** with as many threads as there are processors. A loop that ran inside
//!   `block_on` would wake over the thread that started the runtime, and look a third slower than it is.
//! - **Calibration** runs a loop with more and more messages until its rate is known, which also warms it up, and then gives it as
//!   many as make a round last the asked time, two seconds unless set. Loops of different speed get different counts; a slow
//!   loop is not judged by a tenth of a second, nor a fast one by a file ten times as long as it need be. Where that many
//!   would not fit into memory, a round is made of several passes.
//! - **Rounds take turns**: one round of each loop, then the next, each time beginning with another loop, so that whatever
//!   disturbs the machine for a while disturbs all. Filling a queue, and counting afterwards what is left, are not timed.
//! - **Messages are counted**: a loop that handled one too few or one too many fails the run, and so does one that left
//!   something behind or stored too little. A loop that waits for a message that never comes fails by its deadline.
//! - **The best round** is what is compared: whatever disturbs a round makes it slower, never faster. The median and the slowest
//!   round are published beside it.
//! - **The spread** of a loop is how far its slowest round lies below its best, as a part of the best. Two loops are
//!   *indistinguishable* where their best rounds differ by no more than the larger of their spreads. More rounds never make a
//!   small difference a certain one; they make the best round a better estimate.
//! - **Bound by the database or the broker**: the suite measures the round trip of one trivial command, and each scenario says how
//!   many round trips the baseline makes for a message. Where they take at least half of the baseline's time, the row says
//!   so: the work of the crate and the runtime fits into waiting that both loops share, so the distance between the loops is a
//!   lower bound of what they cost.
//! - **The machine**, the servers' versions and settings, the round trip, the compiler and its settings, the load average at each
//!   row: all asked of the machine when the run is made, nothing typed by hand.
//!
//! # What the figures do not say
//!
//! Times hold for the machine they were made on; ratios carry over better, counts of instructions and allocations best. On a
//! machine with few processors and all of them idle, a loop of single round trips is bound by wake-ups, in which the cost of
//! code hides; `--pin` puts loops and servers on one processor, where there is nothing to wake and every instruction shows.
//! The results say which of the two was done.
//!
//! # Adding a scenario
//!
//! A scenario is a function in the folder of its transport under `scenarios`, listed in the folder's `mod.rs`; CONTRIBUTING.md
//! has the steps, [`suite`] the parts it is made of.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal: its table, its progress and its errors"
)]

pub mod costs;
#[cfg(feature = "suite")]
pub mod facts;
pub mod results;
#[cfg(feature = "suite")]
pub mod scenarios;
#[cfg(feature = "suite")]
pub mod suite;

//! The faults that users of such systems met, on files, with processes that are killed, stopped and started again.
//!
//! A process is this test binary, started anew to run the one ignored test below: a service as [`kit::Service`] describes it.
//! What its handlers do they write to a side file, a line with one write each, with its own time; the tests watch that file.

#![allow(dead_code, reason = "each test binary uses some of what they share")]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(
    clippy::unchecked_time_subtraction,
    reason = "what is compared happened in this order, or the test is to fail"
)]

mod bad_input;
mod clocks;
mod crash;
mod drain;
mod kit;
mod leases;
mod order;
#[path = "../sqlite/place.rs"]
mod place;
mod poison;
mod retries;
mod sharing;
mod starting;
#[path = "../behaviour/support.rs"]
mod support;

/// What a started process does.
#[test]
#[ignore = "the other tests start it as a process of its own"]
fn service() {
    kit::serve();
}

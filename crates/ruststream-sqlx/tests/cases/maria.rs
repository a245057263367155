//! The faults that users of such systems met, on MariaDB, with processes that are killed, stopped and started again.
//! See `main.rs` beside this one.

#![allow(dead_code, reason = "each test binary uses some of what they share")]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(
    clippy::unchecked_time_subtraction,
    reason = "what is compared happened in this order, or the test is to fail"
)]

mod crash;
mod drain;
mod kit;
mod order;
#[path = "../maria/place.rs"]
mod place;
mod poison;
mod retries;
mod sharing;
mod soak;
#[path = "../behaviour/support.rs"]
mod support;

/// What a started process does.
#[test]
#[ignore = "the other tests start it as a process of its own"]
fn service() {
    kit::serve();
}

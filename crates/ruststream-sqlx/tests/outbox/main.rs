//! What the outbox promises, in a file of `SQLite`.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(dead_code, reason = "each database uses some of what they share")]

mod kit;
mod picky;
#[path = "place/sqlite.rs"]
mod place;
mod processes;
mod receipts;
mod relay;
mod stopping;
mod tables;
mod testing;
mod tools;
mod tracked;
mod writing;

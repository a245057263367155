//! What the outbox promises, on a server of `PostgreSQL`.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(dead_code, reason = "each database uses some of what they share")]

mod cuts;
mod kit;
mod lent;
mod picky;
#[path = "place/postgres.rs"]
mod place;
mod processes;
mod receipts;
mod relay;
mod stopping;
mod tables;
mod telling;
mod tools;
mod tracked;
mod writing;

//! What is promised, on files of `SQLite`.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(dead_code, reason = "each database uses some of what they share")]

mod clock;
#[path = "../behaviour/conformance.rs"]
mod conformance;
#[path = "../behaviour/delivery.rs"]
mod delivery;
mod files;
#[path = "../behaviour/forms.rs"]
mod forms;
#[path = "../behaviour/names.rs"]
mod names;
#[path = "../behaviour/ordering.rs"]
mod ordering;
mod place;
#[path = "../behaviour/processes.rs"]
mod processes;
#[path = "../behaviour/requests.rs"]
mod requests;
#[path = "../behaviour/settling.rs"]
mod settling;
#[path = "../behaviour/support.rs"]
mod support;
#[path = "../behaviour/tables.rs"]
mod tables;
#[path = "../behaviour/waking.rs"]
mod waking;

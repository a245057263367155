//! What a whole app does over the transport.

mod batch;
mod dead;
mod handling;
mod health;
mod order;
mod retry;
mod sharing;
mod stopping;

pub use batch::{app_batches_by_count_and_age, app_retries_alone_what_failed_in_a_batch};
pub use dead::{app_gives_up_into_a_named_place, app_gives_up_into_the_default_place, app_sets_poison_aside};
pub use handling::{app_confirms_replies_before_acks, app_drains_a_backlog, app_handles_each_once};
pub use health::{app_pauses_and_resumes, app_works_again_after_a_cut};
pub use order::{app_keeps_the_order_of_each_key, app_lets_no_key_block_others};
pub use retry::{app_retries_by_policy, app_retries_outlive_it, app_survives_panics};
pub use sharing::{app_renews_its_leases, app_shares_with_another};
pub use stopping::{app_drains_before_it_stops, app_killed_loses_nothing};

use super::super::book::{Book, Pages, Run, failed_with, finds_nothing, reply_to};
use super::super::service::{STOPPING, Service};
use super::{Harness, Rig, Tally, Violation, ensure, failed, numbered, preview};

/// Servers keep times in whole milliseconds.
const ROUNDING: std::time::Duration = std::time::Duration::from_millis(2);

/// Whether the attempts that a handler sees grow: counted by the transport, or by the runtime while it keeps a message in hand.
fn attempts_grow<H: Harness>(rig: &Rig<'_, H>) -> bool {
    let capabilities = rig.capabilities();
    capabilities.attempts() || !capabilities.delay()
}

/// What the panics of handlers say.
const PANIC: &str = "the check lets this handler panic";

/// Panics where the condition holds, without the noise that the panic hook would make in the tests' output.
fn panics_if(condition: bool) {
    if condition {
        std::panic::resume_unwind(Box::new(PANIC));
    }
}

//! The checks, each a function that can be run alone.
//!
//! A check of something that the transport does not claim to do passes at once. The checks whose names begin with `app_` start
//! whole apps over the transport; the others call its halves by hand.

mod app;
mod connection;
mod dead;
mod delay;
mod delivery;
mod lease;
mod load;
mod message;
mod publish;
mod settling;

pub use app::{
    app_batches_by_count_and_age, app_confirms_replies_before_acks, app_drains_a_backlog, app_drains_before_it_stops,
    app_gives_up_into_a_named_place, app_gives_up_into_the_default_place, app_handles_each_once,
    app_keeps_the_order_of_each_key, app_killed_loses_nothing, app_lets_no_key_block_others, app_pauses_and_resumes,
    app_renews_its_leases, app_retries_alone_what_failed_in_a_batch, app_retries_by_policy, app_retries_outlive_it,
    app_sets_poison_aside, app_shares_with_another, app_survives_panics, app_works_again_after_a_cut,
};
pub use connection::{answers_pings, reconnects_after_a_cut};
pub use dead::{dead_letter_is_kept, dead_letter_is_never_delivered, dead_letters_can_be_walked_through};
pub use delay::{delay_outlives_its_subscription, publish_waits_its_delay, retry_waits_its_delay};
pub use delivery::{delivers_everything_once, keeps_the_order, respects_room, waits_for_messages};
pub use lease::{renew_keeps_a_lease, renew_reports_lost_leases, stale_receipts_are_harmless};
pub use load::{drains_a_backlog, fetch_is_cancel_safe, shares_among_consumers};
pub use message::{
    binary_survives, empty_survives, header_bytes_survive, headers_survive, key_survives, large_survives, text_survives,
};
pub use publish::{confirmed_is_stored, confirms_many_at_once};
pub use settling::{
    acked_is_gone, close_gives_back, mixed_verdicts_settle_each, released_comes_again_uncounted,
    released_keeps_its_place, retried_comes_again_counted, unsettled_comes_again,
};

use super::rig::{Reader, Rig, failed, within};
use super::tally::{Tally, each_once, numbered, payloads, preview, text};
use super::violation::ensure;
use super::{Harness, Violation};

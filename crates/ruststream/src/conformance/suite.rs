//! From the list of checks to tests and reports.

use super::{Harness, Violation};

/// Makes a test of each check: `suite!(MyHarness);`, in a module `conformance` of its own.
#[macro_export]
macro_rules! conformance_suite {
    ($harness:ty) => {
        $crate::__conformance_checks! { [$crate::__conformance_tests] [$harness] }
    };
}

/// The list of all checks, given to the macro that it is called with.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_checks {
    ([$($with:tt)+] [$($arguments:tt)*]) => {
        $($with)+! {
            [$($arguments)*]
            delivers_everything_once
            keeps_the_order
            respects_room
            waits_for_messages
            drains_a_backlog
            shares_among_consumers
            fetch_is_cancel_safe
            acked_is_gone
            unsettled_comes_again
            released_comes_again_uncounted
            released_keeps_its_place
            retried_comes_again_counted
            mixed_verdicts_settle_each
            close_gives_back
            retry_waits_its_delay
            publish_waits_its_delay
            delay_outlives_its_subscription
            dead_letter_is_never_delivered
            dead_letter_is_kept
            dead_letters_can_be_walked_through
            text_survives
            binary_survives
            empty_survives
            large_survives
            headers_survive
            header_bytes_survive
            key_survives
            confirmed_is_stored
            confirms_many_at_once
            stale_receipts_are_harmless
            renew_keeps_a_lease
            renew_reports_lost_leases
            answers_pings
            reconnects_after_a_cut
            app_handles_each_once
            app_drains_a_backlog
            app_confirms_replies_before_acks
            app_retries_by_policy
            app_retries_outlive_it
            app_survives_panics
            app_gives_up_into_the_default_place
            app_gives_up_into_a_named_place
            app_sets_poison_aside
            app_keeps_the_order_of_each_key
            app_lets_no_key_block_others
            app_batches_by_count_and_age
            app_retries_alone_what_failed_in_a_batch
            app_drains_before_it_stops
            app_killed_loses_nothing
            app_shares_with_another
            app_renews_its_leases
            app_pauses_and_resumes
            app_works_again_after_a_cut
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ([$harness:ty] $($check:ident)*) => {
        mod conformance {
            use super::*;

            $(
                #[test]
                fn $check() {
                    $crate::conformance::run::<$harness>(async |harness: &$harness| {
                        $crate::conformance::checks::$check(harness).await
                    });
                }
            )*
        }
    };
}

/// Runs one check on a fresh harness, on a runtime of its own.
///
/// # Panics
///
/// With the text of the violation, if there is one.
pub fn run<H: Harness>(check: impl AsyncFnOnce(&H) -> Result<(), Violation>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the runtime of a check starts");
    let outcome = runtime.block_on(async {
        let harness = H::start().await;
        check(&harness).await
    });
    if let Err(violation) = outcome {
        panic!("{violation}");
    }
}

/// Runs every check, each on a harness that `start` makes, and answers their names and outcomes.
pub async fn report<H: Harness>(start: impl AsyncFn() -> H) -> Vec<(&'static str, Result<(), Violation>)> {
    macro_rules! run_each {
        ([$start:ident] $($check:ident)*) => {
            vec![$((stringify!($check), Box::pin(async { super::checks::$check(&$start().await).await }).await)),*]
        };
    }
    crate::__conformance_checks! { [run_each] [start] }
}

//! Every check of the conformance suite fails on a transport that breaks what it checks.
#![cfg(feature = "conformance")]

mod broken;

use std::collections::BTreeSet;

use broken::{Broken, Flaw};
use ruststream::conformance::{Violation, report};

/// The checks that find a flaw: first those that are made for it, then those that cannot help but see it too.
const FOUND_BY: &[(Flaw, &[&str], &[&str])] = &[
    (Flaw::None, &[], &[]),
    (
        Flaw::LosesEveryTenth,
        &["delivers_everything_once"],
        &[
            "drains_a_backlog",
            "shares_among_consumers",
            "fetch_is_cancel_safe",
            "app_handles_each_once",
            "app_drains_a_backlog",
            "app_confirms_replies_before_acks",
            "app_survives_panics",
            "app_sets_poison_aside",
            "app_keeps_the_order_of_each_key",
            "app_lets_no_key_block_others",
            "app_batches_by_count_and_age",
            "app_retries_alone_what_failed_in_a_batch",
            "app_drains_before_it_stops",
            "app_killed_loses_nothing",
            "app_shares_with_another",
        ],
    ),
    (
        Flaw::DoublesEveryTenth,
        &["delivers_everything_once"],
        &[
            "drains_a_backlog",
            "shares_among_consumers",
            "fetch_is_cancel_safe",
            "app_handles_each_once",
            "app_drains_a_backlog",
            "app_confirms_replies_before_acks",
            "app_survives_panics",
            "app_sets_poison_aside",
            "app_keeps_the_order_of_each_key",
            "app_lets_no_key_block_others",
            "app_batches_by_count_and_age",
            "app_retries_alone_what_failed_in_a_batch",
            "app_drains_before_it_stops",
            "app_killed_loses_nothing",
            "app_shares_with_another",
        ],
    ),
    (
        Flaw::ReversesWhatItFetches,
        &["keeps_the_order", "app_keeps_the_order_of_each_key"],
        &["released_keeps_its_place"],
    ),
    (Flaw::BringsMoreThanThereIsRoomFor, &["respects_room"], &[]),
    (Flaw::ReturnsWithNothing, &["waits_for_messages"], &[]),
    (Flaw::LosesBeyondFiveThousand, &["drains_a_backlog"], &[]),
    (
        Flaw::GivesEachConsumerAll,
        &["shares_among_consumers", "app_shares_with_another"],
        &[
            "close_gives_back",
            "delay_outlives_its_subscription",
            "app_retries_outlive_it",
            "app_sets_poison_aside",
            "app_keeps_the_order_of_each_key",
            "app_lets_no_key_block_others",
            "app_drains_before_it_stops",
        ],
    ),
    (Flaw::LosesWhatACancelledFetchTook, &["fetch_is_cancel_safe"], &[]),
    (
        Flaw::ForgetsAcks,
        &["acked_is_gone", "app_handles_each_once"],
        &[
            "unsettled_comes_again",
            "stale_receipts_are_harmless",
            "reconnects_after_a_cut",
            "app_drains_a_backlog",
            "app_confirms_replies_before_acks",
            "app_retries_by_policy",
            "app_retries_outlive_it",
            "app_survives_panics",
            "app_gives_up_into_a_named_place",
            "app_sets_poison_aside",
            "app_batches_by_count_and_age",
            "app_retries_alone_what_failed_in_a_batch",
            "app_drains_before_it_stops",
            "app_killed_loses_nothing",
            "app_shares_with_another",
            "app_renews_its_leases",
        ],
    ),
    (
        Flaw::AcksWhatItHandsOut,
        &["unsettled_comes_again", "app_killed_loses_nothing"],
        &[
            "released_comes_again_uncounted",
            "released_keeps_its_place",
            "retried_comes_again_counted",
            "mixed_verdicts_settle_each",
            "retry_waits_its_delay",
            "delay_outlives_its_subscription",
            "dead_letter_is_kept",
            "dead_letters_can_be_walked_through",
            "stale_receipts_are_harmless",
            "renew_reports_lost_leases",
            "app_retries_by_policy",
            "app_retries_outlive_it",
            "app_survives_panics",
            "app_gives_up_into_the_default_place",
            "app_retries_alone_what_failed_in_a_batch",
            "app_drains_before_it_stops",
        ],
    ),
    (
        Flaw::CountsReleases,
        &["released_comes_again_uncounted", "app_drains_before_it_stops"],
        &["released_keeps_its_place"],
    ),
    (
        Flaw::PutsReleasedBehind,
        &["released_keeps_its_place"],
        &["app_drains_before_it_stops"],
    ),
    (
        Flaw::AcksRetries,
        &["retried_comes_again_counted", "app_survives_panics"],
        &[
            "mixed_verdicts_settle_each",
            "retry_waits_its_delay",
            "delay_outlives_its_subscription",
            "stale_receipts_are_harmless",
            "app_retries_by_policy",
            "app_retries_outlive_it",
            "app_gives_up_into_the_default_place",
            "app_retries_alone_what_failed_in_a_batch",
        ],
    ),
    (
        Flaw::ForgetsAttempts,
        &["retried_comes_again_counted", "app_retries_by_policy"],
        &[
            "unsettled_comes_again",
            "app_retries_outlive_it",
            "app_survives_panics",
            "app_gives_up_into_the_default_place",
            "app_retries_alone_what_failed_in_a_batch",
            "app_killed_loses_nothing",
        ],
    ),
    (
        Flaw::GivesAllTheFirstVerdict,
        &["mixed_verdicts_settle_each", "app_retries_alone_what_failed_in_a_batch"],
        &["app_survives_panics"],
    ),
    (
        Flaw::KeepsWhatItTookAfterClose,
        &["close_gives_back"],
        &["released_keeps_its_place", "app_drains_before_it_stops"],
    ),
    (
        Flaw::RetriesAtOnce,
        &["retry_waits_its_delay"],
        &[
            "delay_outlives_its_subscription",
            "app_retries_by_policy",
            "app_retries_outlive_it",
        ],
    ),
    (
        Flaw::RetriesLate,
        &["retry_waits_its_delay"],
        &["delay_outlives_its_subscription"],
    ),
    (Flaw::PublishesAtOnce, &["publish_waits_its_delay"], &[]),
    (
        Flaw::KeepsDelaysInMemory,
        &["delay_outlives_its_subscription", "app_retries_outlive_it"],
        &[],
    ),
    (
        Flaw::RetriesDeadLetters,
        &["dead_letter_is_never_delivered"],
        &[
            "dead_letter_is_kept",
            "dead_letters_can_be_walked_through",
            "app_gives_up_into_the_default_place",
        ],
    ),
    (
        Flaw::AcksDeadLetters,
        &["dead_letter_is_kept", "app_gives_up_into_the_default_place"],
        &["dead_letters_can_be_walked_through"],
    ),
    (Flaw::LosesWhatIsReplayed, &["dead_letters_can_be_walked_through"], &[]),
    (Flaw::BreaksText, &["text_survives"], &[]),
    (
        Flaw::CutsAtZero,
        &["binary_survives"],
        &[
            "dead_letter_is_kept",
            "large_survives",
            "app_gives_up_into_the_default_place",
            "app_gives_up_into_a_named_place",
        ],
    ),
    (Flaw::LosesEmpty, &["empty_survives"], &["app_sets_poison_aside"]),
    (Flaw::CutsLarge, &["large_survives"], &[]),
    (
        Flaw::LosesDuplicateHeaders,
        &["headers_survive"],
        &["app_gives_up_into_a_named_place", "app_sets_poison_aside"],
    ),
    (
        Flaw::BreaksHeaderBytes,
        &["header_bytes_survive"],
        &["app_gives_up_into_a_named_place", "app_sets_poison_aside"],
    ),
    (
        Flaw::LosesKeys,
        &["key_survives"],
        &[
            "app_gives_up_into_a_named_place",
            "app_sets_poison_aside",
            "app_keeps_the_order_of_each_key",
            "app_lets_no_key_block_others",
        ],
    ),
    (
        Flaw::ConfirmsBeforeItStores,
        &["confirmed_is_stored", "app_confirms_replies_before_acks"],
        &["app_retries_outlive_it"],
    ),
    (Flaw::LosesOneOfTwoAtOnce, &["confirms_many_at_once"], &[]),
    (
        Flaw::DoesNotCountStale,
        &["stale_receipts_are_harmless"],
        &["reconnects_after_a_cut"],
    ),
    (Flaw::LetsLateAcksSettle, &["stale_receipts_are_harmless"], &[]),
    (
        Flaw::DoesNotRenew,
        &["renew_keeps_a_lease", "app_renews_its_leases"],
        &["renew_reports_lost_leases"],
    ),
    (
        Flaw::ReportsHeldLeasesAsLost,
        &["renew_keeps_a_lease"],
        &["renew_reports_lost_leases"],
    ),
    (Flaw::HidesLostLeases, &["renew_reports_lost_leases"], &[]),
    (Flaw::NeverAnswersPings, &["answers_pings"], &["reconnects_after_a_cut"]),
    (
        Flaw::StaysCutOff,
        &["reconnects_after_a_cut", "app_works_again_after_a_cut"],
        &[],
    ),
    (
        Flaw::RedeliversWhatWasAcked,
        &["acked_is_gone", "app_handles_each_once"],
        &[
            "delivers_everything_once",
            "shares_among_consumers",
            "fetch_is_cancel_safe",
            "unsettled_comes_again",
            "released_comes_again_uncounted",
            "retried_comes_again_counted",
            "mixed_verdicts_settle_each",
            "close_gives_back",
            "app_drains_a_backlog",
            "app_confirms_replies_before_acks",
            "app_retries_by_policy",
            "app_retries_outlive_it",
            "app_survives_panics",
            "app_gives_up_into_a_named_place",
            "app_sets_poison_aside",
            "app_batches_by_count_and_age",
            "app_retries_alone_what_failed_in_a_batch",
            "app_drains_before_it_stops",
            "app_killed_loses_nothing",
            "app_shares_with_another",
            "app_renews_its_leases",
            "app_pauses_and_resumes",
        ],
    ),
    (
        Flaw::SettlesSixtyFourAtOnce,
        &["app_drains_a_backlog"],
        &["app_handles_each_once", "app_sets_poison_aside"],
    ),
    (
        Flaw::HandsOutOneAtATime,
        &["app_batches_by_count_and_age"],
        &[
            "acked_is_gone",
            "unsettled_comes_again",
            "released_keeps_its_place",
            "mixed_verdicts_settle_each",
            "close_gives_back",
            "confirmed_is_stored",
            "confirms_many_at_once",
            "dead_letters_can_be_walked_through",
            "reconnects_after_a_cut",
            "app_sets_poison_aside",
            "app_lets_no_key_block_others",
            "app_retries_alone_what_failed_in_a_batch",
            "app_drains_before_it_stops",
            "app_killed_loses_nothing",
        ],
    ),
    (
        Flaw::WaitsUntilAllIsSettled,
        &["app_lets_no_key_block_others"],
        &["app_killed_loses_nothing"],
    ),
    (Flaw::StumblesOverContentTypes, &["app_sets_poison_aside"], &[]),
    (
        Flaw::LosesHeadersBeyondEight,
        &["app_gives_up_into_a_named_place"],
        &["app_sets_poison_aside"],
    ),
    (
        Flaw::ReleasesLate,
        &["app_drains_before_it_stops"],
        &["released_keeps_its_place"],
    ),
    (
        Flaw::DiesWithADroppedFetch,
        &["app_pauses_and_resumes"],
        &[
            "waits_for_messages",
            "fetch_is_cancel_safe",
            "reconnects_after_a_cut",
            "app_works_again_after_a_cut",
        ],
    ),
    (
        Flaw::HangsAfterACut,
        &["app_works_again_after_a_cut"],
        &["reconnects_after_a_cut"],
    ),
    (Flaw::HidesACut, &["app_works_again_after_a_cut"], &[]),
];

/// As [`FOUND_BY`], on a transport that declares nothing but its count of attempts: the runtime supplies the rest.
const FOUND_BY_ON_A_BARE_TRANSPORT: &[(Flaw, &[&str])] = &[
    (Flaw::None, &[]),
    (
        Flaw::LosesHeadersBeyondEight,
        &[
            "app_gives_up_into_the_default_place",
            "app_gives_up_into_a_named_place",
            "app_sets_poison_aside",
        ],
    ),
];

async fn violations_of(transport: impl Fn() -> Broken) -> Vec<(&'static str, Violation)> {
    report(async || transport())
        .await
        .into_iter()
        .filter_map(|(check, outcome)| outcome.err().map(|violation| (check, violation)))
        .collect()
}

async fn violations(flaw: Flaw) -> Vec<(&'static str, Violation)> {
    violations_of(|| Broken::new(flaw)).await
}

#[tokio::test(start_paused = true)]
async fn a_flaw_is_found_by_its_checks_and_no_others() {
    let mut wrong = Vec::new();
    for (flaw, made_for, too) in FOUND_BY {
        let found = violations(*flaw).await;
        let names: BTreeSet<_> = found.iter().map(|(check, _)| *check).collect();
        let expected: BTreeSet<_> = made_for.iter().chain(*too).copied().collect();
        if names != expected {
            wrong.push(format!("{flaw:?} expected {expected:?}, found {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_supplies_is_checked_too() {
    for (flaw, expected) in FOUND_BY_ON_A_BARE_TRANSPORT {
        let found = violations_of(|| Broken::bare(*flaw)).await;
        let names: Vec<_> = found.iter().map(|(check, _)| *check).collect();
        assert_eq!(names, *expected, "{flaw:?}: {found:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_check_has_a_flaw_that_it_is_made_for() {
    let made_for: BTreeSet<_> = FOUND_BY
        .iter()
        .flat_map(|(_, checks, _)| checks.iter().copied())
        .collect();
    let checks: BTreeSet<_> = report(async || Broken::new(Flaw::None))
        .await
        .into_iter()
        .map(|(check, _)| check)
        .collect();
    assert_eq!(checks, made_for);
}

#[tokio::test(start_paused = true)]
async fn a_violation_says_what_was_to_happen_and_what_did() {
    let found = violations(Flaw::LosesEveryTenth).await;
    let (_, violation) = &found[0];
    assert!(
        violation.to_string().contains("never delivered: 10 (message 00009"),
        "{violation}"
    );
}

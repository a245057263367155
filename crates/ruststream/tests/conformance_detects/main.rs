//! Every check of the conformance suite fails on a transport that breaks what it checks.
#![cfg(feature = "conformance")]

mod broken;

use std::collections::BTreeSet;

use broken::{Broken, Flaw};
use ruststream::conformance::{Violation, report};

/// The checks that find a flaw: first the one that is made for it, then those that cannot help but see it too.
const FOUND_BY: &[(Flaw, &[&str])] = &[
    (Flaw::None, &[]),
    (
        Flaw::LosesEveryTenth,
        &[
            "delivers_everything_once",
            "drains_a_backlog",
            "shares_among_consumers",
            "fetch_is_cancel_safe",
        ],
    ),
    (
        Flaw::DoublesEveryTenth,
        &[
            "delivers_everything_once",
            "drains_a_backlog",
            "shares_among_consumers",
            "fetch_is_cancel_safe",
        ],
    ),
    (
        Flaw::ReversesWhatItFetches,
        &["keeps_the_order", "released_keeps_its_place"],
    ),
    (Flaw::BringsMoreThanThereIsRoomFor, &["respects_room"]),
    (Flaw::ReturnsWithNothing, &["waits_for_messages"]),
    (Flaw::LosesBeyondFiveThousand, &["drains_a_backlog"]),
    (
        Flaw::GivesEachConsumerAll,
        &[
            "shares_among_consumers",
            "close_gives_back",
            "delay_outlives_its_subscription",
        ],
    ),
    (Flaw::LosesWhatACancelledFetchTook, &["fetch_is_cancel_safe"]),
    (
        Flaw::ForgetsAcks,
        &[
            "acked_is_gone",
            "unsettled_comes_again",
            "stale_receipts_are_harmless",
            "reconnects_after_a_cut",
        ],
    ),
    (
        Flaw::AcksWhatItHandsOut,
        &[
            "unsettled_comes_again",
            "released_comes_again_uncounted",
            "released_keeps_its_place",
            "retried_comes_again_counted",
            "mixed_verdicts_settle_each",
            "retry_waits_its_delay",
            "delay_outlives_its_subscription",
            "dead_letter_is_kept",
            "stale_receipts_are_harmless",
            "renew_reports_lost_leases",
        ],
    ),
    (
        Flaw::CountsReleases,
        &["released_comes_again_uncounted", "released_keeps_its_place"],
    ),
    (Flaw::PutsReleasedBehind, &["released_keeps_its_place"]),
    (
        Flaw::AcksRetries,
        &[
            "retried_comes_again_counted",
            "mixed_verdicts_settle_each",
            "retry_waits_its_delay",
            "delay_outlives_its_subscription",
            "stale_receipts_are_harmless",
        ],
    ),
    (
        Flaw::ForgetsAttempts,
        &["retried_comes_again_counted", "unsettled_comes_again"],
    ),
    (Flaw::GivesAllTheFirstVerdict, &["mixed_verdicts_settle_each"]),
    (
        Flaw::KeepsWhatItTookAfterClose,
        &["close_gives_back", "released_keeps_its_place"],
    ),
    (
        Flaw::RetriesAtOnce,
        &["retry_waits_its_delay", "delay_outlives_its_subscription"],
    ),
    (
        Flaw::RetriesLate,
        &["retry_waits_its_delay", "delay_outlives_its_subscription"],
    ),
    (Flaw::PublishesAtOnce, &["publish_waits_its_delay"]),
    (Flaw::KeepsDelaysInMemory, &["delay_outlives_its_subscription"]),
    (
        Flaw::RetriesDeadLetters,
        &["dead_letter_is_never_delivered", "dead_letter_is_kept"],
    ),
    (Flaw::AcksDeadLetters, &["dead_letter_is_kept"]),
    (Flaw::BreaksText, &["text_survives"]),
    (
        Flaw::CutsAtZero,
        &["binary_survives", "dead_letter_is_kept", "large_survives"],
    ),
    (Flaw::LosesEmpty, &["empty_survives"]),
    (Flaw::CutsLarge, &["large_survives"]),
    (Flaw::LosesDuplicateHeaders, &["headers_survive"]),
    (Flaw::BreaksHeaderBytes, &["header_bytes_survive"]),
    (Flaw::LosesKeys, &["key_survives"]),
    (Flaw::ConfirmsBeforeItStores, &["confirmed_is_stored"]),
    (Flaw::LosesOneOfTwoAtOnce, &["confirms_many_at_once"]),
    (
        Flaw::DoesNotCountStale,
        &["stale_receipts_are_harmless", "reconnects_after_a_cut"],
    ),
    (Flaw::LetsLateAcksSettle, &["stale_receipts_are_harmless"]),
    (
        Flaw::DoesNotRenew,
        &["renew_keeps_a_lease", "renew_reports_lost_leases"],
    ),
    (
        Flaw::ReportsHeldLeasesAsLost,
        &["renew_keeps_a_lease", "renew_reports_lost_leases"],
    ),
    (Flaw::HidesLostLeases, &["renew_reports_lost_leases"]),
    (Flaw::NeverAnswersPings, &["answers_pings", "reconnects_after_a_cut"]),
    (Flaw::StaysCutOff, &["reconnects_after_a_cut"]),
];

async fn violations(flaw: Flaw) -> Vec<(&'static str, Violation)> {
    report(async || Broken::new(flaw))
        .await
        .into_iter()
        .filter_map(|(check, outcome)| outcome.err().map(|violation| (check, violation)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_flaw_is_found_by_its_checks_and_no_others() {
    let mut wrong = Vec::new();
    for (flaw, expected) in FOUND_BY {
        let found = violations(*flaw).await;
        let names: BTreeSet<_> = found.iter().map(|(check, _)| *check).collect();
        if names != expected.iter().copied().collect() {
            wrong.push(format!("{flaw:?} expected {expected:?}, found {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn every_check_has_a_flaw_that_it_is_made_for() {
    let made_for: BTreeSet<_> = FOUND_BY
        .iter()
        .filter_map(|(_, checks)| checks.first().copied())
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

//! Batches: how they fill, and what their outcomes mean for each message.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::future::ready;

use common::{
    Gate, Given, Record, app, batch_handler, handler, health, publish, publish_ids, start, start_one, within,
};
use ruststream::app::Subscription;
use ruststream::handler::IntoBatchOutcome;
use ruststream::prelude::*;
use ruststream::transport::DeadReason;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

/// Each batch: its numbers with their attempts, and the second it came.
type Batches = Record<(Vec<(u64, u32)>, u64)>;

fn noting<R: IntoBatchOutcome + Send + 'static>(
    batches: &Batches,
    say: impl Fn(&[Given]) -> R + Send + Sync + 'static,
) -> impl ruststream::handler::Subscriber<()> {
    let (batches, begun) = (batches.clone(), Instant::now());
    batch_handler("orders", move |given| {
        let ids = given.iter().map(|one| (one.id(), one.attempt)).collect();
        batches.add((ids, begun.elapsed().as_secs()));
        ready(say(&given))
    })
}

async fn started<R: IntoBatchOutcome + Send + 'static>(
    batches: &Batches,
    say: impl Fn(&[Given]) -> R + Send + Sync + 'static,
    set: impl FnOnce(&mut Subscription<MemoryBroker>),
) -> (MemoryBroker, ruststream::app::Running) {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        set(scope
            .include(noting(batches, say))
            .retry(Retry::fixed(10 * SECOND).attempts(3)));
    })
    .await;
    (broker, running)
}

fn sizes(batches: &Batches) -> Vec<usize> {
    batches.all().iter().map(|(ids, _)| ids.len()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_full_does_not_wait() {
    let batches = Batches::default();
    let (broker, running) = started(
        &batches,
        |_| (),
        |orders| {
            orders.batch(10).batch_age(HOUR);
        },
    )
    .await;

    publish_ids(&broker, "orders", 0..30).await;
    within(broker.idle("orders")).await;

    assert_eq!(sizes(&batches), [10, 10, 10]);
    assert!(batches.all().iter().all(|(_, second)| *second == 0));
    assert_eq!(health(&running).acked, 30);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_when_its_first_message_is_old_enough() {
    let batches = Batches::default();
    let (broker, running) = started(
        &batches,
        |_| (),
        |orders| {
            orders.batch(10).batch_age(5 * SECOND);
        },
    )
    .await;

    publish_ids(&broker, "orders", [1]).await;
    tokio::time::sleep(3 * SECOND).await;
    publish_ids(&broker, "orders", [2, 3]).await;
    within(broker.idle("orders")).await;

    assert_eq!(batches.all(), [(vec![(1, 1), (2, 1), (3, 1)], 5)]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_waits_takes_in_what_fills_it() {
    for prefetch in [None, Some(64)] {
        let batches = Batches::default();
        let (broker, running) = started(
            &batches,
            |_| (),
            |orders| {
                orders.batch(64).batch_age(HOUR);
                prefetch.map(|prefetch| orders.prefetch(prefetch));
            },
        )
        .await;

        publish_ids(&broker, "orders", 0..50).await;
        tokio::time::sleep(SECOND).await;
        publish_ids(&broker, "orders", 50..70).await;
        batches.reaches(1).await;

        assert_eq!(
            (batches.all()[0].0.len(), batches.all()[0].1),
            (64, 1),
            "prefetch: {prefetch:?}"
        );
        running.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_an_age_waits_until_it_is_full() {
    let batches = Batches::default();
    let (broker, running) = started(
        &batches,
        |_| (),
        |orders| {
            orders.batch(3).batch_age(Duration::MAX);
        },
    )
    .await;

    publish_ids(&broker, "orders", [1, 2]).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(batches.len(), 0);
    publish_ids(&broker, "orders", [3]).await;
    within(broker.idle("orders")).await;

    assert_eq!(sizes(&batches), [3]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_batch_is_larger_than_its_size() {
    let batches = Batches::default();
    let (broker, running) = started(
        &batches,
        |_| (),
        |orders| {
            orders.batch(7).workers(3);
        },
    )
    .await;

    publish_ids(&broker, "orders", 0..1_000).await;
    within(broker.idle("orders")).await;

    assert!(sizes(&batches).iter().all(|size| (1..=7).contains(size)));
    let mut ids: Vec<_> = batches.all().into_iter().flat_map(|(ids, _)| ids).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..1_000).map(|id| (id, 1)).collect::<Vec<_>>());
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_error_is_every_messages_and_each_is_retried_alone() {
    let batches = Batches::default();
    let say = |given: &[Given]| {
        if given.iter().any(|one| one.text == "2") {
            Err("2 is bad")
        } else {
            Ok(())
        }
    };
    let (broker, running) = started(&batches, say, |orders| {
        orders.batch(4).batch_age(HOUR);
    })
    .await;

    publish_ids(&broker, "orders", 1..=4).await;
    within(broker.idle("orders")).await;

    let all: Vec<_> = batches.all().into_iter().map(|(ids, _)| ids).collect();
    assert_eq!(all[0], [(1, 1), (2, 1), (3, 1), (4, 1)]);
    let mut alone = all[1..].to_vec();
    alone.sort_unstable();
    assert_eq!(alone, [[(1, 2)], [(2, 2)], [(2, 3)], [(3, 2)], [(4, 2)]]);
    let dead = broker.dead_letters("orders");
    assert_eq!(
        (dead.len(), &dead[0].payload[..], &dead[0].letter.error[..]),
        (1, &b"2"[..], "2 is bad")
    );
    assert_eq!(broker.counts("orders").acked, 3);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_outcome_holds_for_every_message() {
    let batches = Batches::default();
    let (broker, running) = started(
        &batches,
        |_| HandlerOutcome::dead_letter("unwanted"),
        |orders| {
            orders.batch(3).batch_age(HOUR);
        },
    )
    .await;

    publish_ids(&broker, "orders", 1..=3).await;
    within(broker.idle("orders")).await;

    let dead = broker.dead_letters("orders");
    assert_eq!(dead.len(), 3);
    assert!(
        dead.iter()
            .all(|dead| dead.letter.reason == DeadReason::Rejected && dead.letter.error == "unwanted")
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outcome_for_each_is_each_messages_own() {
    let batches = Batches::default();
    let say = |given: &[Given]| -> Vec<HandlerOutcome> {
        given
            .iter()
            .map(|one| match (one.id(), one.attempt) {
                (7, 1) => HandlerOutcome::retry(),
                (8, _) => HandlerOutcome::drop(),
                (9, _) => HandlerOutcome::dead_letter("nine"),
                _ => HandlerOutcome::ack(),
            })
            .collect()
    };
    let (broker, running) = started(&batches, say, |orders| {
        orders.batch(10).batch_age(HOUR);
    })
    .await;

    publish_ids(&broker, "orders", 1..=10).await;
    within(broker.idle("orders")).await;

    assert_eq!(batches.all()[1..], [(vec![(7, 2)], 10)]);
    let health = health(&running);
    assert_eq!(
        (health.acked, health.dropped, health.dead_lettered, health.retried),
        (8, 1, 1, 1)
    );
    assert_eq!(&broker.dead_letters("orders")[0].payload[..], b"9");
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wrong_number_of_outcomes_is_that_batchs_failure_alone() {
    // It answers one too few for every batch of more than one.
    let batches = Batches::default();
    let say = |given: &[Given]| -> Vec<Result<(), String>> {
        let answers = if given[0].id() < 3 {
            given.len() - 1
        } else {
            given.len()
        };
        (0..answers.max(1)).map(|_| Ok(())).collect()
    };
    let (broker, running) = started(&batches, say, |orders| {
        orders.batch(3).batch_age(HOUR);
    })
    .await;

    publish_ids(&broker, "orders", 0..9).await;
    within(broker.idle("orders")).await;

    assert_eq!(sizes(&batches), [3, 3, 3, 1, 1, 1]);
    let health = health(&running);
    assert_eq!((health.acked, health.failed, health.dead_lettered), (9, 3, 0));
    assert_eq!(health.workers, 1);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stays_wrong_ends_as_dead_letters_that_say_so() {
    let batches = Batches::default();
    let (broker, running) = started(
        &batches,
        |_| Vec::<HandlerOutcome>::new(),
        |orders| {
            orders.batch(2).batch_age(HOUR);
        },
    )
    .await;

    publish_ids(&broker, "orders", 1..=2).await;
    within(broker.idle("orders")).await;

    let dead = broker.dead_letters("orders");
    assert_eq!(dead.len(), 2);
    assert!(
        dead[0].letter.error.contains("0 outcomes for 1 messages"),
        "{}",
        dead[0].letter.error
    );
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_bad_item_neither_loses_nor_repeats_the_rest_for_ever() {
    // C30: item 7 is nacked, item 9 panics.
    let (batches, handled) = (Batches::default(), Record::<u64>::default());
    let done = handled.clone();
    let say = move |given: &[Given]| -> Vec<Result<(), &str>> {
        assert!(given.iter().all(|one| one.id() != 9), "nine panics");
        given
            .iter()
            .map(|one| {
                if one.id() == 7 {
                    return Err("seven is refused");
                }
                done.add(one.id());
                Ok(())
            })
            .collect()
    };
    let (broker, running) = started(&batches, say, |orders| {
        orders.batch(10).batch_age(HOUR);
    })
    .await;

    publish_ids(&broker, "orders", 1..=10).await;
    within(broker.idle("orders")).await;

    let mut once = handled.all();
    once.sort_unstable();
    assert_eq!(once, [1, 2, 3, 4, 5, 6, 8, 10]);
    let mut dead: Vec<_> = broker
        .dead_letters("orders")
        .into_iter()
        .map(|dead| (dead.payload.to_vec(), dead.letter.error, dead.letter.attempts))
        .collect();
    dead.sort();
    assert_eq!(
        dead,
        [
            (b"7".to_vec(), "seven is refused".to_owned(), 3),
            (b"9".to_vec(), "nine panics".to_owned(), 3)
        ]
    );
    assert_eq!(health(&running).workers, 1);
    running.shutdown().await.unwrap();
}

#[subscriber("orders")]
async fn numbers(ids: &[u64], State(seen): State<Record<Vec<u64>>>) -> Vec<Result<(), String>> {
    seen.add(ids.to_vec());
    ids.iter()
        .map(|id| if *id == 3 { Err("three".to_owned()) } else { Ok(()) })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_leaves_the_batch_and_the_others_keep_their_outcomes() {
    let (broker, seen) = (MemoryBroker::new(), Record::default());
    publish(&broker, "orders", ["x", "1", "2", "", "3", "4", "{"]).await;
    let running = start_one(&broker, &seen, numbers, |orders| {
        orders.batch(7).batch_age(HOUR).retry(Retry::never());
    })
    .await;

    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), [vec![1, 2, 3, 4]]);
    let dead: Vec<_> = broker
        .dead_letters("orders")
        .into_iter()
        .map(|dead| {
            (
                String::from_utf8(dead.payload.to_vec()).unwrap(),
                dead.letter.reason,
                dead.letter.attempts,
            )
        })
        .collect();
    assert_eq!(
        dead,
        [
            ("x".to_owned(), DeadReason::Undecodable, 1),
            (String::new(), DeadReason::Undecodable, 1),
            ("3".to_owned(), DeadReason::AttemptsExhausted, 1),
            ("{".to_owned(), DeadReason::Undecodable, 1),
        ]
    );
    assert_eq!(health(&running).acked, 3);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_time_is_up_is_retried_one_by_one() {
    let (broker, seen) = (MemoryBroker::new(), Record::<(usize, u32)>::default());
    let running = start(broker.clone(), |scope| {
        let seen = seen.clone();
        scope
            .include(batch_handler("orders", move |given| {
                seen.add((given.len(), given[0].attempt));
                async move {
                    if given.len() > 1 {
                        std::future::pending::<()>().await;
                    }
                }
            }))
            .batch(3)
            .batch_age(HOUR)
            .timeout(SECOND);
    })
    .await;

    publish_ids(&broker, "orders", 1..=3).await;
    within(broker.idle("orders")).await;

    assert_eq!(seen.all(), [(3, 1), (1, 2), (1, 2), (1, 2)]);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_not_full_is_released_at_once_at_a_shutdown() {
    let batches = Batches::default();
    let (broker, running) = started(
        &batches,
        |_| (),
        |orders| {
            orders.batch(10).batch_age(HOUR);
        },
    )
    .await;
    publish_ids(&broker, "orders", 1..=3).await;
    within(async {
        while health(&running).in_hand < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;

    let begun = Instant::now();
    running.shutdown().await.unwrap();

    assert_eq!((begun.elapsed(), batches.len()), (Duration::ZERO, 0));
    let standing: Vec<_> = broker.published("orders").into_iter().map(|one| one.attempts).collect();
    assert_eq!(standing, [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn workers_take_batches_side_by_side() {
    let (broker, gate, sizes) = (MemoryBroker::new(), Gate::closed(), Record::<usize>::default());
    let running = start(broker.clone(), |scope| {
        let (gate, sizes) = (gate.clone(), sizes.clone());
        scope
            .include(batch_handler("orders", move |given| {
                sizes.add(given.len());
                let gate = gate.clone();
                async move { gate.pass().await }
            }))
            .batch(5)
            .workers(3)
            .batch_age(HOUR);
    })
    .await;

    publish_ids(&broker, "orders", 0..15).await;
    assert_eq!(sizes.reaches(3).await, [5, 5, 5]);
    gate.let_go(3);
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_batch_size_on_a_handler_of_single_messages_is_a_wiring_error() {
    let single = || handler("orders", |_| ready(()));
    let size = app(MemoryBroker::new(), |scope| {
        scope.include(single()).batch(10);
    });
    let age = app(MemoryBroker::new(), |scope| {
        scope.include(single()).batch_age(SECOND);
    });
    for app in [size, age] {
        let error = app.start().await.unwrap_err();
        assert!(error.is_wiring());
        assert!(
            error.to_string().contains("let its first parameter be `&[T]`"),
            "{error}"
        );
    }
}

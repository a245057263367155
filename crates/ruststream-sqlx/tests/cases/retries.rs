//! Retries over restarts.

use std::time::Duration;

use crate::kit::{Job, Place, Queue, Work, attempts, runs};
use crate::support::eventually;

/// C17: a message that always fails is tried as often as the policy says, whoever was stopped or killed in between.
#[tokio::test]
async fn attempts_are_counted_through_restarts_and_end() {
    const WAIT: Duration = Duration::from_millis(400);
    let place = Place::new().await;
    let queue = Queue::new("jobs").lease(Duration::from_secs(1)).retry(4, WAIT);
    let service = place.service("a").reads(queue);
    place.publish("jobs", &Job::many([1], &Work::Fail(u32::MAX))).await;
    let is_put_off = async || {
        eventually(async || place.counts("jobs").await, |counts| counts.scheduled == 1).await;
    };

    let first = place.start(&service).await;
    place.side.begun(1).await;
    is_put_off().await;
    first.stop().await;
    let second = place.start(&service).await;
    place.side.begun(2).await;
    is_put_off().await;
    second.kill().await;
    let third = place.start(&service).await;
    assert_eq!(place.drained("jobs").await, 1);
    third.stop().await;

    let lines = place.side.lines();
    assert_eq!(attempts(&lines, 1), [1, 2, 3, 4]);
    for pair in runs(&lines, 1).windows(2) {
        assert!(pair[1].at - pair[0].at >= WAIT, "{pair:#?}");
    }
    let letter = place
        .connect()
        .await
        .dead_letters()
        .list("jobs", 10)
        .await
        .unwrap()
        .remove(0);
    assert_eq!((letter.reason.as_str(), letter.attempts), ("attempts-exhausted", 4));
    assert_eq!(letter.error, "attempt 4 is to fail");
}

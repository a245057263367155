//! SIGTERM and SIGINT.

use std::time::Duration;

use crate::kit::{Job, Place, Queue, SECOND, Work, attempts, ends, now, runs};

/// C20: what can be finished within the grace period is; the rest goes at once to whoever is there, its attempt given back.
#[tokio::test]
async fn at_sigterm_work_in_hand_is_finished_and_the_rest_given_back() {
    const GRACE: Duration = Duration::from_millis(1500);
    let place = Place::new().await;
    let queue = Queue::new("jobs").workers(20);
    let service = place.service("a").reads(queue.clone().prefetch(100)).grace(GRACE);
    let mut first = place.start(&service).await;
    let mut jobs = Job::many(1..=10, &Work::Wait(900));
    jobs.extend(Job::many(11..=20, &Work::Hold(u32::MAX)));
    jobs.extend(Job::many(21..=520, &Work::Done));
    let jobs: Vec<Job> = jobs.into_iter().map(|job| job.only_on("a")).collect();
    place.publish("jobs", &jobs).await;
    place.side.begun(20).await;

    let stopped = now();
    first.signal("TERM");
    let second = place.start(&place.service("b").reads(queue)).await;
    let exit = first.exit().await;
    let ended = now();
    place.side.ended(520).await;
    assert_eq!(place.drained("jobs").await, 0);
    second.stop().await;

    assert_eq!(exit.code(), Some(0), "{}", first.log());
    assert!(ended - stopped < GRACE + SECOND, "{:?}", ended - stopped);
    let lines = place.side.lines();
    for id in 1..=10 {
        let runs = runs(&lines, id);
        assert_eq!(
            (runs.len(), runs[0].process),
            (1, first.process),
            "message {id} was in hand"
        );
        assert_eq!(ends(&lines, id), 1);
    }
    for id in 11..=20 {
        assert_eq!(
            attempts(&lines, id),
            [1, 1],
            "message {id} was given back with its attempt"
        );
        let again = runs(&lines, id)[1];
        assert_eq!(again.node, "b");
        assert!(
            again.at >= stopped + GRACE,
            "{:?} before the grace was over",
            stopped + GRACE - again.at
        );
        assert!(
            again.at <= stopped + GRACE + 2 * SECOND,
            "{:?} late",
            again.at - stopped - GRACE
        );
    }
    for id in 21..=520 {
        assert_eq!(attempts(&lines, id), [1], "message {id} was begun by no one");
        let run = runs(&lines, id)[0];
        assert_eq!(run.node, "b");
        // Before the grace is over: what waited in the buffer of the first was free at once.
        assert!(run.at < stopped + GRACE, "message {id} waited {:?}", run.at - stopped);
    }
}

/// C20: a second signal ends a drain at once, and what was in hand comes again.
#[tokio::test]
async fn a_second_signal_exits_at_once() {
    for (first, second) in [("TERM", "TERM"), ("INT", "TERM"), ("TERM", "INT")] {
        let place = Place::new().await;
        let queue = Queue::new("jobs").lease(SECOND);
        let service = place.service("a").reads(queue);
        let mut node = place.start(&service).await;
        place.publish("jobs", &Job::many([1], &Work::Hold(1))).await;
        place.side.begun(1).await;
        node.signal(first);
        let begun = now();
        while !node.log().contains("a second signal exits at once") {
            assert!(now() - begun < 10 * SECOND, "the signal was not heard");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }

        let signalled = now();
        node.signal(second);
        let exit = node.exit().await;

        assert_eq!(exit.code(), Some(130), "{first}, then {second}");
        assert!(now() - signalled < SECOND, "{:?}", now() - signalled);
        let again = place.start(&service).await;
        let lines = place.side.ended(1).await;
        assert_eq!(attempts(&lines, 1), [1, 2]);
        again.stop().await;
    }
}

/// SIGINT drains as SIGTERM does.
#[tokio::test]
async fn at_sigint_work_in_hand_is_finished() {
    let place = Place::new().await;
    let mut node = place
        .start(&place.service("a").reads(Queue::new("jobs").workers(4)))
        .await;
    place.publish("jobs", &Job::many(1..=4, &Work::Wait(300))).await;
    place.side.begun(4).await;

    node.signal("INT");

    assert_eq!(node.exit().await.code(), Some(0));
    let lines = place.side.lines();
    assert!((1..=4).all(|id| ends(&lines, id) == 1));
    assert_eq!(place.drained("jobs").await, 0);
}

/// Neither a handler that waits for ever nor one that blocks its thread keeps a process from ending.
#[tokio::test]
async fn a_handler_that_never_returns_keeps_no_process_alive() {
    const GRACE: Duration = Duration::from_millis(300);
    for (work, workers, attempt) in [(Work::Hold(u32::MAX), 2, 1), (Work::Block, 2, 2), (Work::Block, 1, 2)] {
        let place = Place::new().await;
        let queue = Queue::new("jobs").workers(workers).lease(SECOND);
        let service = place.service("a").reads(queue.clone()).grace(GRACE);
        let mut node = place.start(&service).await;
        place.publish("jobs", &[Job::new(1, work.clone()).only_on("a")]).await;
        place.side.begun(1).await;

        let stopped = now();
        node.signal("TERM");
        let exit = node.exit().await;

        assert_eq!(exit.code(), Some(0), "{work:?}: {}", node.log());
        let took = now() - stopped;
        assert!(took < GRACE + SECOND, "{work:?}: {took:?}");
        // One that can be dropped is given back; one that cannot is redelivered when its lease ends.
        let other = place.start(&place.service("b").reads(queue)).await;
        let lines = place.side.ended(1).await;
        assert_eq!(attempts(&lines, 1), [1, attempt], "{work:?}");
        other.stop().await;
    }
}

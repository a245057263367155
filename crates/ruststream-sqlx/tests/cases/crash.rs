//! Processes that are killed: what they held comes again, and nothing else does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::kit::{Job, Line, Place, Queue, SECOND, Sending, Work, attempts, ends, now, of, runs};

const LEASE: Duration = Duration::from_secs(2);

/// C13: the leases of a killed node end when they say, neither earlier nor much later, and its messages are at attempt 2.
#[tokio::test]
async fn what_a_killed_node_had_in_flight_is_reclaimed_when_its_leases_end() {
    let place = Place::new().await;
    let queue = Queue::new("jobs").workers(20).lease(LEASE);
    let first = place.start(&place.service("a").reads(queue.clone())).await;
    place.publish("jobs", &Job::many(1..=20, &Work::Hold(1))).await;
    place.side.begun(20).await;
    let second = place.start(&place.service("b").reads(queue)).await;
    // Past the first lease: what is in flight is renewed, and the other node gets none of it.
    tokio::time::sleep(LEASE + Duration::from_millis(200)).await;

    first.kill().await;
    let killed = now();
    let due = leases(&place).await;
    let lines = place.side.ended(20).await;

    assert_eq!(due.len(), 20);
    for id in 1..=20 {
        assert_eq!(attempts(&lines, id), [1, 2], "message {id}");
        let again = runs(&lines, id)[1];
        assert_eq!(again.process, second.process);
        let lease_ended = due[&id];
        assert!(
            again.at >= lease_ended,
            "message {id} came {:?} early",
            lease_ended - again.at
        );
        assert!(
            again.at <= killed + LEASE + SECOND,
            "message {id} came {:?} late",
            again.at - killed - LEASE
        );
    }
    second.stop().await;
}

/// When the lease of each message ends.
async fn leases(place: &Place) -> BTreeMap<u64, Duration> {
    let id = |payload: &[u8]| serde_json::from_slice::<Job>(payload).unwrap().id;
    let ends = place.file.lease_ends().await;
    ends.into_iter().map(|(payload, end)| (id(&payload), end)).collect()
}

/// C13: a row that someone deletes is gone, which is said once; it is no error, and the node goes on.
#[tokio::test]
async fn a_row_deleted_under_its_handler_is_gone_and_no_error() {
    let place = Place::new().await;
    let queue = Queue::new("jobs").workers(2).lease(Duration::from_millis(600));
    let mut node = place.start(&place.service("a").reads(queue)).await;
    place.publish("jobs", &Job::many([1], &Work::Wait(900))).await;
    place.side.begun(1).await;

    place.file.sql("DELETE FROM ruststream_messages").await;
    place.side.ended(1).await;
    place.publish("jobs", &Job::many([2], &Work::Done)).await;
    place.side.ended(2).await;
    assert_eq!(place.drained("jobs").await, 0);
    node.signal("TERM");
    assert!(node.exit().await.success());

    let log = node.log();
    assert_eq!(log.matches("is gone").count(), 1, "{log}");
    assert!(!log.contains("ERROR"), "{log}");
    let lines = place.side.lines();
    assert_eq!((attempts(&lines, 1), attempts(&lines, 2)), (vec![1], vec![1]));
    let stale = of(&lines, "stale").next().unwrap();
    assert_eq!(stale.id, 1);
}

/// C17: attempts are counted when a message is handed out, so one that kills its process ends as a dead letter too.
#[tokio::test]
async fn a_message_that_kills_its_process_ends_as_a_dead_letter() {
    let place = Place::new().await;
    let queue = Queue::new("jobs")
        .lease(Duration::from_millis(400))
        .retry(4, Duration::ZERO);
    let service = place.service("a").reads(queue);
    place
        .publish("jobs", &[Job::new(1, Work::Kill(u32::MAX)), Job::new(2, Work::Done)])
        .await;

    for _ in 0..4 {
        let mut node = place.spawn(&service, &[]);
        assert_eq!(node.exit().await.code(), None, "it was to be killed by its handler");
    }
    let node = place.start(&service).await;
    let lines = place.side.ended(1).await;
    assert_eq!(place.drained("jobs").await, 1);
    node.stop().await;

    assert_eq!(attempts(&lines, 1), [1, 2, 3, 4]);
    let letters = place.connect().await.dead_letters().list("jobs", 10).await.unwrap();
    assert_eq!(serde_json::from_slice::<Job>(&letters[0].payload).unwrap().id, 1);
    assert_eq!(letters[0].reason, "attempts-exhausted");
    assert!(letters[0].error.contains("4 attempts"), "{}", letters[0].error);
    assert_eq!(ends(&lines, 2), 1);
}

/// Kills at random moments, under load: nothing is lost, and what runs twice was in flight at a kill.
#[tokio::test]
async fn kills_under_load_lose_nothing_and_double_only_what_was_in_flight() {
    const KILLS: usize = 6;
    const IN_FLIGHT: usize = 32;
    let place = Place::new().await;
    let mut random = fastrand::Rng::with_seed(0x5eed);
    let queue = Queue::new("jobs")
        .workers(8)
        .prefetch(IN_FLIGHT)
        .lease(Duration::from_millis(500))
        .retry(50, Duration::from_millis(10));
    let sending = Sending {
        queue: "jobs".to_owned(),
        first: 0,
        count: 1500,
        group: 10,
        work: Work::Wait(4),
    };
    let sender = place.start(&place.service("sender").sends(sending)).await;
    let service = place.service("worker").reads(queue);
    let mut killed = Vec::new();
    for _ in 0..KILLS {
        let node = place.start(&service).await;
        let wanted = random.usize(1..150);
        let process = node.process;
        place
            .side
            .until("some work before a kill", |lines| {
                of(lines, "begin").filter(|line| line.process == process).count() >= wanted
            })
            .await;
        killed.push(process);
        node.kill().await;
    }
    let node = place.start(&service).await;
    let all_handled = |lines: &[Line]| {
        let handled: BTreeSet<u64> = of(lines, "end").map(|line| line.id).collect();
        handled.len() == 1500
    };
    let lines = place.side.until("the end of every message", all_handled).await;
    assert_eq!(place.drained("jobs").await, 0);
    sender.stop().await;
    node.stop().await;

    let mut cut_short: BTreeMap<u32, usize> = BTreeMap::new();
    for id in 0..1500 {
        let runs = runs(&lines, id);
        let (_, before) = runs.split_last().unwrap();
        for run in before {
            assert!(
                killed.contains(&run.process),
                "message {id} ran twice though its process lived: {run:?}"
            );
            *cut_short.entry(run.process).or_default() += 1;
        }
    }
    assert!(!cut_short.is_empty(), "it was idle whenever it was killed");
    println!("ran twice, by the process that was killed: {cut_short:?}");
    for (process, messages) in cut_short {
        assert!(messages <= IN_FLIGHT, "process {process} had {messages} in flight");
    }
}

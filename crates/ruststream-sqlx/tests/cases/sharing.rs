//! Several services on one file.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::kit::{Job, Line, Place, Queue, SECOND, Sending, Work, attempts, ends, now, of, publish, runs};
use crate::place::Place as Database;
use crate::support::eventually;

/// C21: the service that does not know a kind leaves it alone, however long the one that does is away.
#[tokio::test]
async fn a_kind_waits_for_the_service_that_knows_it() {
    let place = Place::new().await;
    let lease = Duration::from_millis(600);
    let common = Queue::new("common").lease(lease);
    let kind = Queue::new("kind-k").lease(lease);
    let first = place.start(&place.service("a").reads(common.clone())).await;
    let knows = place.service("b").reads(common).reads(kind);
    let second = place.start(&knows).await;
    place
        .publish("kind-k", &[Job::new(1, Work::Hold(1)), Job::new(2, Work::Done)])
        .await;
    place.side.begun(1).await;

    second.kill().await;
    let connection = place.connect().await;
    for id in 100..110 {
        publish(&connection, "common", &Job::many([id], &Work::Done)).await;
        let done = place.side.until("the common work", |lines| ends(lines, id) == 1).await;
        assert_eq!(runs(&done, id)[0].node, "a");
    }
    // The lease of the killed one has ended, and no one who is there takes the message.
    let left = eventually(
        async || connection.queue_counts("kind-k").await.unwrap(),
        |counts| counts.ready == 2,
    )
    .await;
    assert_eq!((left.leased, left.scheduled, left.dead), (0, 0, 0));
    let again = place.start(&knows).await;
    place
        .side
        .until("the kind", |lines| ends(lines, 1) == 1 && ends(lines, 2) == 1)
        .await;

    assert_eq!(place.drained("kind-k").await, 0);
    let lines = place.side.lines();
    assert_eq!((attempts(&lines, 1), ends(&lines, 1)), (vec![1, 2], 1));
    assert!(
        [1, 2]
            .iter()
            .all(|id| runs(&lines, *id).iter().all(|run| run.node == "b"))
    );
    first.stop().await;
    again.stop().await;
}

/// Two services with different leases and workers share a queue: each claim has the lease of the one that made it.
#[tokio::test]
async fn services_with_different_settings_for_one_queue_keep_each_their_own() {
    let place = Place::new().await;
    let (short, long) = (Duration::from_millis(700), Duration::from_secs(20));
    let brief = place
        .start(&place.service("brief").reads(Queue::new("jobs").workers(1).lease(short)))
        .await;
    place.publish("jobs", &[Job::new(1, Work::Hold(1))]).await;
    place.side.begun(1).await;
    let slow = place
        .start(&place.service("slow").reads(Queue::new("jobs").workers(4).lease(long)))
        .await;
    let held = Job::many(2..=4, &Work::Wait(1500));
    place.publish("jobs", &held).await;
    let before = place.side.begun(4).await;
    assert_eq!(of(&before, "begin").filter(|line| line.node == "slow").count(), 3);
    let long_ones = |ends: Vec<(Vec<u8>, Duration)>| ends.iter().filter(|(_, end)| *end > now() + 2 * SECOND).count();
    assert_eq!(
        long_ones(place.file.lease_ends().await),
        3,
        "three leases are long, and one is short"
    );

    // The short lease ends, and the other service takes the message; its own go on.
    brief.kill().await;
    let lines = place.side.ended(4).await;

    assert_eq!(attempts(&lines, 1), [1, 2]);
    assert_eq!(runs(&lines, 1)[1].node, "slow");
    assert!((2..=4).all(|id| attempts(&lines, id) == [1]));
    assert_eq!(place.drained("jobs").await, 0);
    slow.stop().await;
}

/// Two publishers and two consumers, four processes: every message is handled once.
#[tokio::test]
async fn four_processes_on_one_file_lose_and_double_nothing() {
    const EACH: u64 = 2500;
    let place = Place::new().await;
    let mut nodes = Vec::new();
    for node in ["a", "b"] {
        nodes.push(
            place
                .start(&place.service(node).reads(Queue::new("jobs").workers(4)))
                .await,
        );
    }
    for (number, node) in ["c", "d"].into_iter().enumerate() {
        let sending = Sending {
            queue: "jobs".to_owned(),
            first: number as u64 * EACH,
            count: EACH,
            group: 5,
            work: Work::Done,
        };
        nodes.push(place.start(&place.service(node).sends(sending)).await);
    }

    let all_handled = |lines: &[Line]| {
        let handled: BTreeSet<u64> = of(lines, "end").map(|line| line.id).collect();
        handled.len() as u64 == 2 * EACH
    };
    place.side.until("the end of every message", all_handled).await;
    assert_eq!(place.drained("jobs").await, 0);
    for node in nodes {
        node.stop().await;
    }

    let lines = place.side.lines();
    assert_eq!(of(&lines, "begin").count() as u64, 2 * EACH, "none ran twice");
    assert_eq!(of(&lines, "sent").count() as u64, 2 * EACH);
    assert!(of(&lines, "stale").all(|line| line.id == 0));
    for node in ["a", "b"] {
        assert!(of(&lines, "begin").any(|line| line.node == node), "{node} got nothing");
    }
}

/// A row of another process wakes a service that waits soon, though that hardly uses the CPU.
#[tokio::test]
async fn a_waiting_service_is_woken_soon_and_does_not_spin() {
    const ROWS: u64 = 40;
    let place = Place::new().await;
    let node = place
        .start(&place.service("a").reads(Queue::new("jobs").workers(4)))
        .await;
    let connection = place.connect().await;
    let mut random = fastrand::Rng::with_seed(40);
    let mut waits = Vec::new();
    for id in 0..ROWS {
        // Looks of the other process are regular: no row is to come at the same distance from one.
        tokio::time::sleep(Duration::from_millis(random.u64(1..60))).await;
        publish(&connection, "jobs", &Job::many([id], &Work::Done)).await;
        let confirmed = crate::kit::now();
        let lines = place.side.until("the row", |lines| ends(lines, id) == 1).await;
        waits.push(runs(&lines, id)[0].at.saturating_sub(confirmed));
    }
    waits.sort();
    let (middle, late, last) = (waits[19], waits[37], waits[39]);
    println!("woken after {middle:?} (p50), {late:?} (p95), {last:?} (max)");
    assert!(late <= Database::WOKEN_WITHIN, "{waits:?}");

    let before = node.cpu();
    tokio::time::sleep(2 * SECOND).await;
    let used = node.cpu() - before;
    println!("a waiting service used {used:?} of CPU in two seconds");
    assert!(used < Duration::from_millis(60), "{used:?} of CPU in two seconds");
    node.stop().await;
}

//! Time zones, and clocks that are set.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use ruststream::app::Running;
use ruststream::prelude::*;
use ruststream::transport::Broker;
use ruststream_sqlx::Inbox;

use crate::kit::{Job, Place, Queue, SECOND, Work, attempts, of, publish, runs};
use crate::place::Place as File;
use crate::support::eventually;

/// How late a delayed message may come.
const LATE: Duration = Duration::from_millis(250);

/// C24: a delay is as long as it says, whatever the time zones of those who send and those who handle.
#[tokio::test]
async fn delays_depend_on_no_time_zone() {
    let place = Place::new().await;
    let zones = [
        "Asia/Tokyo",
        "America/Los_Angeles",
        "Pacific/Kiritimati",
        "<+0545>-5:45",
    ];
    let mut nodes = Vec::new();
    for (number, zone) in zones.into_iter().enumerate() {
        let queue = Queue::new(&format!("jobs-{number}")).retry(2, SECOND);
        let service = place.service(&format!("node-{number}")).reads(queue);
        nodes.push(place.start_with(&service, &[("TZ", zone)]).await);
    }
    // Each sends to the next, which lives elsewhere; and each has a retry.
    for number in 0..4 {
        let send = Work::Send {
            queue: format!("jobs-{}", (number + 1) % 4),
            id: 100 + number,
            delay: 1000,
        };
        place
            .publish(
                &format!("jobs-{number}"),
                &[Job::new(number, send), Job::new(10 + number, Work::Fail(1))],
            )
            .await;
    }
    let lines = place.side.ended(12).await;

    let bound = |waited: Duration, what: &str| {
        println!("{what}: {:?} late", waited.saturating_sub(SECOND));
        assert!(waited >= SECOND && waited <= SECOND + LATE, "{what}: {waited:?}");
    };
    for number in 0..4 {
        let sent = of(&lines, "sent").find(|line| line.id == 100 + number).unwrap();
        let came = runs(&lines, 100 + number)[0];
        // The time of sending lies between the begin of the call that sent and the line that says it is confirmed.
        let began = runs(&lines, number)[0].at;
        assert!(came.at - began >= SECOND, "{:?}", came.at - began);
        assert!(came.at - sent.at <= SECOND + LATE, "{:?}", came.at - sent.at);
        let retried = runs(&lines, 10 + number);
        assert_eq!(attempts(&lines, 10 + number), [1, 2]);
        bound(retried[1].at - retried[0].at, "a retry");
    }
    for node in nodes {
        node.stop().await;
    }
}

/// A clock that a test sets.
#[derive(Debug, Clone, Default)]
struct Clock(Arc<AtomicI64>);

impl Clock {
    fn step(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    fn source(&self) -> impl Fn() -> SystemTime + Send + Sync + 'static {
        let offset = Arc::clone(&self.0);
        move || {
            let seconds = offset.load(Ordering::SeqCst);
            let step = Duration::from_secs(seconds.unsigned_abs());
            if seconds < 0 {
                SystemTime::now() - step
            } else {
                SystemTime::now() + step
            }
        }
    }
}

#[subscriber("numbers")]
async fn count(id: u64, State(calls): State<Arc<[AtomicUsize; 60]>>) {
    tokio::time::sleep(Duration::from_millis(400)).await;
    calls[id as usize].fetch_add(1, Ordering::SeqCst);
}

async fn app(file: &File, clock: &Clock, calls: &Arc<[AtomicUsize; 60]>) -> Running {
    RustStream::new(AppInfo::new("case", "1.0.0"))
        .state(Arc::clone(calls))
        .with_broker(file.broker().clock(clock.source()), |broker| {
            let inbox = Inbox::queue("numbers").lease(SECOND);
            broker.include(count).source(inbox).workers(20);
        })
        .start()
        .await
        .unwrap()
}

/// Sets the clock by so many seconds while twenty messages are in hand and `waiting` are ready; then twenty more are published.
async fn survives_a_step(seconds: i64, waiting: u64) {
    let file = File::new().await;
    let (clock, calls) = (Clock::default(), Arc::new([const { AtomicUsize::new(0) }; 60]));
    let connection = file.broker().clock(clock.source()).connect().await.unwrap();
    publish(&connection, "numbers", &(0..20 + waiting).collect::<Vec<u64>>()).await;
    let running = app(&file, &clock, &calls).await;
    eventually(
        async || running.health().subscriptions.remove(0),
        |health| health.in_hand == 20,
    )
    .await;

    clock.step(seconds);
    publish(
        &connection,
        "numbers",
        &(20 + waiting..40 + waiting).collect::<Vec<u64>>(),
    )
    .await;
    eventually(
        async || calls.iter().filter(|calls| calls.load(Ordering::SeqCst) > 0).count(),
        |handled| *handled as u64 == 40 + waiting,
    )
    .await;

    eventually(
        async || file.number("SELECT count(*) FROM ruststream_messages").await,
        |left| *left == 0,
    )
    .await;
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_set_forward_loses_nothing() {
    survives_a_step(3600, 20).await;
}

/// What is in hand is settled, and what comes later is handled at once.
#[tokio::test]
async fn a_clock_that_is_set_back_loses_nothing() {
    survives_a_step(-3600, 0).await;
}

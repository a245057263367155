//! A file that someone holds while a service starts on it.

use sqlx::Executor;

use crate::kit::{Job, Place, Queue, SECOND, Work, attempts, now, of};

/// A signal while the app still starts ends it well: in a hook, and while the file is held by someone else.
#[tokio::test]
async fn a_signal_while_starting_ends_the_process_well() {
    let place = Place::new().await;
    let service = place.service("a").reads(Queue::new("jobs"));
    let hanging = place.spawn(&service.clone().hangs_at_start(), &[]);
    place.publish("jobs", &Job::many([1], &Work::Done)).await;
    let mut holder = place.file.plain().await;
    holder.execute("PRAGMA locking_mode = EXCLUSIVE").await.unwrap();
    holder
        .execute("BEGIN EXCLUSIVE; UPDATE ruststream_meta SET version = version")
        .await
        .unwrap();
    let waiting = place.spawn(&service, &[]);
    for mut node in [hanging, waiting] {
        let process = node.process;
        place
            .side
            .until("the start", |lines| {
                of(lines, "starting").any(|line| line.process == process)
            })
            .await;

        let stopped = now();
        node.signal("TERM");

        assert_eq!(node.exit().await.code(), Some(0), "{}", node.log());
        assert!(now() - stopped < SECOND, "{:?}", now() - stopped);
        let lines = place.side.lines();
        assert!(of(&lines, "ready").all(|line| line.process != process));
    }
    holder.execute("ROLLBACK").await.unwrap();
    drop(holder);
    let node = place.start(&service).await;
    assert_eq!(attempts(&place.side.ended(1).await, 1), [1]);
    node.stop().await;
}

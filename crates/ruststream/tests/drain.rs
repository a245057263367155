//! A shutdown: what is in hand is finished or given back, nothing is lost, doubled or charged an attempt.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::future::{pending, ready};
use std::sync::{Arc, Condvar, Mutex};

use common::{Fault, Gate, Half, Record, Reduced, app, handler, health, publish_ids, start, start_one, within};
use ruststream::app::SubscriptionState;
use ruststream::memory::Operation;
use ruststream::policy::OrderBy;
use ruststream::prelude::*;
use ruststream::transport::{Capabilities, ErrorKind};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_short_is_finished_the_long_released_and_the_unstarted_given_back_at_once() {
    // C20: 20 in flight, 10 for 2 s and 10 for 60 s, 500 queued, grace 5 s.
    let (broker, begun, acked) = (
        MemoryBroker::new(),
        Record::<(u64, u32)>::default(),
        Record::<u64>::default(),
    );
    publish_ids(&broker, "orders", 0..520).await;
    let node = |long: Duration| {
        let (begun, acked) = (begun.clone(), acked.clone());
        app(broker.clone(), |scope| {
            scope
                .include(handler("orders", move |given| {
                    let acked = acked.clone();
                    begun.add((given.id(), given.attempt));
                    async move {
                        tokio::time::sleep(if given.id() < 10 { 2 * SECOND } else { long }).await;
                        acked.add(given.id());
                    }
                }))
                .workers(20)
                .prefetch(200);
        })
        .shutdown_grace(5 * SECOND)
    };
    let a = node(60 * SECOND).start().await.unwrap();
    begun.reaches(20).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(health(&a).in_hand, 200);

    // When it is told to stop.
    let stopped = Instant::now();
    a.stop();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(health(&a).state, SubscriptionState::Stopping);

    // Then what was not begun stands again at once, uncounted and in order.
    let standing = broker.published("orders");
    assert_eq!(standing.len(), 500);
    assert!(standing.iter().all(|one| one.attempts == 0));
    assert!(
        standing
            .iter()
            .map(|one| one.payload.to_vec())
            .eq((20..520).map(|id| id.to_string().into_bytes()))
    );

    // Then the short ones are done, the long ones given back with their attempt, within the grace period.
    a.shutdown().await.unwrap();
    assert!(stopped.elapsed() < 6 * SECOND, "{:?}", stopped.elapsed());
    assert_eq!(acked.all(), (0..10).collect::<Vec<_>>());
    assert_eq!((broker.counts("orders").acked, broker.held("orders")), (10, 510));
    assert!(broker.published("orders").iter().all(|one| one.attempts == 0));

    // Then another node handles all the rest, each once.
    let b = node(Duration::from_millis(1)).start().await.unwrap();
    within(broker.idle("orders")).await;
    let mut all = acked.all();
    all.sort_unstable();
    assert_eq!(all, (0..520).collect::<Vec<_>>());
    assert!(begun.all().iter().all(|(_, attempt)| *attempt == 1));
    assert_eq!(broker.counts("orders").stale, 0);
    b.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_returns_does_not_keep_the_app() {
    let (broker, token) = (MemoryBroker::new(), Record::<CancellationToken>::default());
    let running = app(broker.clone(), |scope| {
        let token = token.clone();
        scope.include(handler("orders", move |given| {
            token.add(given.token);
            pending::<()>()
        }));
    })
    .shutdown_grace(5 * SECOND)
    .start()
    .await
    .unwrap();
    publish_ids(&broker, "orders", [1]).await;
    let token = token.reaches(1).await.remove(0);

    let begun = Instant::now();
    running.shutdown().await.unwrap();

    assert_eq!(begun.elapsed().as_secs(), 5);
    assert!(token.is_cancelled());
    assert_eq!(broker.published("orders")[0].attempts, 0);
}

/// Blocks its thread until it is let go.
#[derive(Clone, Default)]
struct Block(Arc<(Mutex<bool>, Condvar)>);

impl Block {
    fn wait(&self) {
        let mut free = self.0.0.lock().unwrap();
        while !*free {
            free = self.0.1.wait(free).unwrap();
        }
    }

    fn let_go(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_does_not_keep_the_app() {
    let (broker, block, begun) = (MemoryBroker::new(), Block::default(), Record::<u64>::default());
    let running = app(broker.clone(), |scope| {
        let (block, begun) = (block.clone(), begun.clone());
        scope
            .include(handler("orders", move |given| {
                begun.add(given.id());
                if given.id() == 1 {
                    block.wait();
                }
                ready(())
            }))
            .workers(2);
    })
    .shutdown_grace(Duration::from_millis(100))
    .start()
    .await
    .unwrap();
    publish_ids(&broker, "orders", 1..=3).await;
    begun.reaches(3).await;

    let stopped = Instant::now();
    running.shutdown().await.unwrap();

    assert!(stopped.elapsed() < 3 * SECOND, "{:?}", stopped.elapsed());
    // The message is another delivery's; what the blocked handler says of it later is harmless.
    assert_eq!(broker.held("orders"), 1);
    block.let_go();
    assert_eq!(broker.counts("orders").acked, 2);
}

#[tokio::test(start_paused = true)]
async fn an_idle_app_stops_at_once() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| ready(()))).workers(4);
    })
    .await;
    tokio::time::sleep(SECOND).await;

    let begun = Instant::now();
    running.shutdown().await.unwrap();

    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_is_not_waited_out_when_the_work_ends_before() {
    let (broker, gate) = (MemoryBroker::new(), Gate::closed());
    let begun = Record::<u64>::default();
    let running = start(broker.clone(), |scope| {
        let (gate, begun) = (gate.clone(), begun.clone());
        scope.include(handler("orders", move |given| {
            begun.add(given.id());
            let gate = gate.clone();
            async move { gate.pass().await }
        }));
    })
    .await;
    publish_ids(&broker, "orders", [1]).await;
    begun.reaches(1).await;

    let stopped = Instant::now();
    running.stop();
    running.stop();
    tokio::time::sleep(3 * SECOND).await;
    gate.let_go(1);
    running.shutdown().await.unwrap();

    assert_eq!((stopped.elapsed().as_secs(), broker.held("orders")), (3, 0));
}

#[subscriber("orders", reply = "receipts")]
async fn answer(id: u64, State(gate): State<Gate>) -> u64 {
    gate.pass().await;
    id
}

#[tokio::test(start_paused = true)]
async fn a_reply_of_the_last_moment_is_confirmed() {
    let (broker, gate) = (MemoryBroker::new(), Gate::closed());
    let running = start_one(&broker, &gate, answer, |_| {}).await;
    publish_ids(&broker, "orders", [1]).await;
    within(async {
        while health(&running).in_hand == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;

    running.stop();
    gate.let_go(1);
    running.shutdown().await.unwrap();

    assert_eq!((broker.published("receipts").len(), broker.held("orders")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failing_transport_does_not_keep_the_app() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(handler("orders", |_| ready(())));
    })
    .await;
    broker.set_down(true);
    tokio::time::sleep(60 * SECOND).await;

    let begun = Instant::now();
    running.shutdown().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn receipts_that_cannot_be_settled_keep_the_app_for_a_bounded_time() {
    let (broker, done) = (MemoryBroker::new(), Record::<u64>::default());
    let running = start(broker.clone(), |scope| {
        let done = done.clone();
        scope.include(handler("orders", move |given| {
            done.add(given.id());
            ready(())
        }));
    })
    .await;
    broker.fail_next(Operation::Settle, 1_000, ErrorKind::Unavailable);
    publish_ids(&broker, "orders", [1]).await;
    done.reaches(1).await;

    let begun = Instant::now();
    running.shutdown().await.unwrap();

    assert!(begun.elapsed() <= 6 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(broker.held("orders"), 1);
}

#[tokio::test(start_paused = true)]
async fn receipts_that_can_be_settled_in_time_are() {
    let (broker, done) = (MemoryBroker::new(), Record::<u64>::default());
    let running = start(broker.clone(), |scope| {
        let done = done.clone();
        scope.include(handler("orders", move |given| {
            done.add(given.id());
            ready(())
        }));
    })
    .await;
    broker.fail_next(Operation::Settle, 3, ErrorKind::Busy);
    publish_ids(&broker, "orders", [1]).await;
    done.reaches(1).await;

    running.shutdown().await.unwrap();

    assert_eq!((broker.held("orders"), broker.counts("orders").acked), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_messages_that_wait_for_their_key_are_given_back_in_order() {
    let (broker, gate, begun) = (MemoryBroker::new(), Gate::closed(), Record::<u64>::default());
    let running = app(broker.clone(), |scope| {
        let (gate, begun) = (gate.clone(), begun.clone());
        scope
            .include(handler("orders", move |given| {
                begun.add(given.id());
                let gate = gate.clone();
                async move { gate.pass().await }
            }))
            .workers(4)
            .ordered_by(OrderBy::message(|_: &u64| 0u8));
    })
    .shutdown_grace(SECOND)
    .start()
    .await
    .unwrap();
    publish_ids(&broker, "orders", 1..=50).await;
    begun.reaches(1).await;

    running.shutdown().await.unwrap();

    let standing = broker.published("orders");
    assert!(standing.iter().all(|one| one.attempts == 0));
    assert!(
        standing
            .iter()
            .map(|one| one.payload.to_vec())
            .eq((1..=50).map(|id| id.to_string().into_bytes()))
    );
    assert_eq!(begun.all(), [1]);
}

#[tokio::test(start_paused = true)]
async fn an_app_that_is_dropped_drains_by_itself() {
    let (broker, gate, begun) = (MemoryBroker::new(), Gate::closed(), Record::<u64>::default());
    let running = start(broker.clone(), |scope| {
        let (gate, begun) = (gate.clone(), begun.clone());
        scope.include(handler("orders", move |given| {
            begun.add(given.id());
            let gate = gate.clone();
            async move { gate.pass().await }
        }));
    })
    .await;
    publish_ids(&broker, "orders", 1..=2).await;
    begun.reaches(1).await;

    drop(running);
    gate.let_go(1);
    within(broker.settled("orders", 1)).await;
    tokio::time::sleep(SECOND).await;

    assert_eq!(
        (broker.published("orders").len(), broker.held("orders"), begun.len()),
        (1, 1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_panics_fails_its_subscription_and_gives_the_rest_back() {
    for half in [Half::Fetch, Half::Settle] {
        let broker = MemoryBroker::new();
        let reduced = Reduced::new(&broker, Capabilities::none().with_delay().with_dead_letters());
        let running = start(reduced.clone(), |scope| {
            scope.include(handler("orders", |_| ready(())));
        })
        .await;
        tokio::time::sleep(SECOND).await;

        reduced.next(half, [Fault::Panic]);
        publish_ids(&broker, "orders", 1..=3).await;
        let error = within(running.finished()).await.unwrap_err();

        assert!(error.is_broker(), "{half:?}");
        assert!(error.to_string().contains("panic"), "{half:?}: {error}");
        assert!(
            error.to_string().contains(&format!("the transport panics in {half:?}")),
            "{half:?}: {error}"
        );
        // The fetch that waited had brought one message, which was handled; all others stand.
        let handled = u64::from(half == Half::Fetch);
        let standing = broker.published("orders").len();
        assert_eq!(
            (broker.counts("orders").acked, standing),
            (handled, 3 - handled as usize),
            "{half:?}"
        );
    }
}

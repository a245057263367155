//! A server that dies, stands still or cannot be reached: all of it passes, and nothing is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::app::Running;
use ruststream::message::Outgoing;
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection as _, Publish, TransportError};
use ruststream_sqlx::{Inbox, SqlxConnection};
use servers::{Instance, Proxy, Settings};
use tokio::time::Instant;

use crate::place::{KIND, Place, PlaceBroker};
use crate::support::{self, eventually};

/// How soon everything works again once the fault is over.
const SOON: Duration = Duration::from_secs(10);

/// How often each message was handled.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<u64, usize>>>);

impl Seen {
    fn of(&self, id: u64) -> usize {
        self.0.lock().unwrap().get(&id).copied().unwrap_or(0)
    }

    fn twice(&self) -> usize {
        self.0.lock().unwrap().values().filter(|count| **count > 1).count()
    }

    /// Waits until all of these were handled.
    async fn all(&self, ids: &[u64]) {
        let missing = async || ids.iter().filter(|id| self.of(**id) == 0).count();
        eventually(missing, |missing| *missing == 0).await;
    }
}

#[subscriber("orders")]
async fn take(id: u64, State(seen): State<Seen>) {
    *seen.0.lock().unwrap().entry(id).or_default() += 1;
}

/// One whose patience is short, so that the faults may be.
fn impatient(place: &Place) -> PlaceBroker {
    let second = Duration::from_secs(1);
    place.broker().connect_timeout(second).statement_timeout(second)
}

async fn service(place: &Place, lease: Duration, seen: &Seen) -> Running {
    RustStream::new(AppInfo::new("faults", "1.0.0"))
        .state(seen.clone())
        .with_broker(impatient(place), |broker| {
            broker
                .include(take)
                .source(Inbox::queue("orders").lease(lease))
                .workers(4);
        })
        .start()
        .await
        .unwrap()
}

async fn send(connection: &SqlxConnection, id: u64) -> Result<(), TransportError> {
    let payload = id.to_string();
    let message = [Outgoing::new("orders", payload.as_bytes())];
    match connection.publisher().publish(&message).await {
        Ok(()) => Ok(()),
        Err(error) => Err(TransportError::new(error.first().kind(), error.first().to_string())),
    }
}

/// Sends until it is told to stop; answers what was confirmed.
async fn send_all(connection: SqlxConnection, mut stop: tokio::sync::oneshot::Receiver<()>) -> Vec<u64> {
    let mut confirmed = Vec::new();
    for id in 0.. {
        if stop.try_recv().is_ok() {
            break;
        }
        match send(&connection, id).await {
            Ok(()) => confirmed.push(id),
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    confirmed
}

/// Runs a service under load through a fault; afterwards a canary is handled soon, and all that was confirmed in the end.
async fn survives(place: &Place, fault: impl AsyncFnOnce()) -> Seen {
    let seen = Seen::default();
    let running = service(place, Duration::from_secs(3), &seen).await;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let sending = tokio::spawn(send_all(impatient(place).connect().await.unwrap(), stopped));
    eventually(async || seen.of(20), |count| *count > 0).await;

    fault().await;

    let over = Instant::now();
    let connection = eventually(async || impatient(place).connect().await.ok(), Option::is_some)
        .await
        .unwrap();
    eventually(async || send(&connection, u64::MAX).await.is_ok(), |sent| *sent).await;
    eventually(async || seen.of(u64::MAX), |count| *count > 0).await;
    assert!(over.elapsed() < SOON, "{:?}", over.elapsed());
    stop.send(()).unwrap();
    let confirmed = tokio::time::timeout(support::PATIENCE, sending).await.unwrap().unwrap();
    seen.all(&confirmed).await;
    let healthy = async || running.health().subscriptions.iter().all(|one| one.reason.is_none());
    eventually(healthy, |healthy| *healthy).await;
    running.shutdown().await.unwrap();
    // A claim whose answer was lost in the fault is nobody's: its lease has to run out.
    let leased = async || connection.queue_counts("orders").await.unwrap().leased;
    eventually(leased, |leased| *leased == 0).await;
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_comes_back_with_all_that_was_confirmed() {
    let mut server = Instance::start(KIND, Settings { durable: true }).unwrap();
    let place = Place::on(&server.url()).await;
    survives(&place, async || {
        tokio::task::block_in_place(|| {
            server.kill();
            server.start_again().unwrap();
        });
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_waited_for() {
    let server = Instance::start(KIND, Settings::default()).unwrap();
    let place = Place::on(&server.url()).await;
    survives(&place, async || {
        server.pause();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        server.resume();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_cuts_swallows_and_refuses_is_outlived() {
    let server = Instance::start(KIND, Settings::default()).unwrap();
    let proxy = Proxy::to(server.port()).unwrap();
    let place = Place::on(&server.url()).await.through(proxy.port());
    survives(&place, async || {
        for _ in 0..5 {
            proxy.cut();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        proxy.stall();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        proxy.heal();
        proxy.refuse();
        tokio::time::sleep(Duration::from_millis(500)).await;
        proxy.heal();
    })
    .await;
}

/// What was done and whose answer was lost is done again, which settles nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_lose_no_message() {
    let server = Instance::start(KIND, Settings::default()).unwrap();
    let proxy = Proxy::to(server.port()).unwrap();
    let place = Place::on(&server.url()).await.through(proxy.port());
    survives(&place, async || {
        proxy.lose_answers();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        proxy.heal();
    })
    .await;
}

/// An idle service finds its dead links out by itself: it has nothing to send that could show them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_service_works_again_after_a_restart() {
    let mut server = Instance::start(KIND, Settings { durable: true }).unwrap();
    let place = Place::on(&server.url()).await;
    let seen = Seen::default();
    let running = service(&place, Duration::from_secs(30), &seen).await;
    tokio::task::block_in_place(|| {
        server.stop();
        server.start_again().unwrap();
    });
    let connection = place.connect().await;
    send(&connection, 1).await.unwrap();
    let sent = Instant::now();
    seen.all(&[1]).await;
    assert!(sent.elapsed() < SOON, "{:?}", sent.elapsed());
    running.shutdown().await.unwrap();
    assert_eq!(seen.twice(), 0);
}

#[tokio::test]
async fn a_server_that_is_absent_is_a_passing_error_and_wrong_settings_are_not() {
    let server = Instance::start(KIND, Settings::default()).unwrap();
    let place = Place::on(&server.url()).await;
    let wrong = place.wrong_brokers();
    for (broker, word) in wrong {
        let error = broker.connect().await.unwrap_err();
        assert!(!error.is_transient(), "{error:?}");
        assert!(error.to_string().contains(word), "{word:?} is missing in: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    drop(server);
    let error = impatient(&place).connect().await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}

/// C06: claims, settles, publishes and replays at once; no deadlock is seen, nothing is lost, nothing handled twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_services_publishers_and_tools_at_once_disturb_no_one() {
    const COUNT: u64 = 2_000;
    let place = Place::new().await;
    let seen = Seen::default();
    let mut services = Vec::new();
    for _ in 0..3 {
        services.push(service(&place, Duration::from_secs(30), &seen).await);
    }
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..4 {
        let connection = place.connect().await;
        publishers.spawn(async move {
            for id in (publisher..COUNT).step_by(4) {
                send(&connection, id).await.unwrap();
            }
        });
    }
    let tools = place.connect().await;
    while publishers.join_next().await.transpose().unwrap().is_some() {
        tools.dead_letters().replay_queue("orders").await.unwrap();
        tools.dead_letters().purge_queue("orders").await.unwrap();
    }
    let ids: Vec<u64> = (0..COUNT).collect();
    seen.all(&ids).await;
    for running in services {
        assert!(running.health().subscriptions.iter().all(|one| one.stale == 0));
        running.shutdown().await.unwrap();
    }
    assert_eq!(seen.twice(), 0);
    assert_eq!(place.number("SELECT count(*) FROM ruststream_messages").await, 0);
}

#[tokio::test]
async fn ten_connections_that_start_at_once_make_one_table() {
    let place = Place::new().await;
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let broker = place.broker();
        starting.spawn(async move { broker.connect().await.map(drop) });
    }
    for started in starting.join_all().await {
        started.unwrap();
    }
    assert_eq!(place.number("SELECT count(*) FROM ruststream_meta").await, 1);
    assert_eq!(
        place.number("SELECT version FROM ruststream_meta").await,
        Place::VERSION
    );
}

#[tokio::test]
async fn a_newer_table_is_refused_with_both_versions() {
    let place = Place::new().await;
    drop(place.connect().await);
    place.sql("UPDATE ruststream_meta SET version = 99").await;
    let error = place.broker().connect().await.unwrap_err();
    assert!(!error.is_transient());
    for word in ["99", "upgrade ruststream-sqlx"] {
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[tokio::test]
async fn tables_can_be_made_by_the_printed_statements() {
    let place = Place::new().await;
    let refused = place.broker().migrate(false).connect().await.unwrap_err();
    assert!(!refused.is_transient());
    assert!(refused.to_string().contains("ddl()"), "{refused}");
    place.script(&PlaceBroker::ddl()).await;
    let connection = place.broker().migrate(false).connect().await.unwrap();
    send(&connection, 1).await.unwrap();
    assert_eq!(connection.queue_counts("orders").await.unwrap().ready, 1);
}

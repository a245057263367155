//! Servers that are restarted, killed, stopped, cut off or full: services resume, and errors say what is wrong.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(clippy::print_stderr, reason = "how soon a service resumed is worth seeing")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::app::{Running, SubscriptionState};
use ruststream::message::Outgoing;
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection, Delivery, ErrorKind, Fetch, Publish, Settle, Source, Verdict};
use ruststream_lapin::{Declaration, LapinBroker, LapinConnection, Queue};
use servers::{Instance, Kind, Proxy, Settings};
use tokio::time::{Instant, sleep, timeout};

/// How long a test waits for what is to happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// How soon a service has to work again when an outage is over.
const RESUME: Duration = Duration::from_secs(10);
/// How soon a publish has to be answered.
const ANSWER: Duration = Duration::from_secs(5);

fn server() -> Instance {
    Instance::start(Kind::Rabbit, Settings { durable: true }).unwrap()
}

fn broker(port: u16) -> LapinBroker {
    LapinBroker::new(format!("amqp://guest:guest@127.0.0.1:{port}/%2f"))
        .call_timeout(Duration::from_secs(2))
        .connect_timeout(Duration::from_secs(2))
        .publish_timeout(Duration::from_secs(4))
        .heartbeat(Duration::from_secs(2))
}

/// A number in a column of `list_queues`.
fn of_queue(server: &Instance, queue: &str, column: &str) -> u64 {
    let listed = server
        .rabbitmqctl(&["list_queues", "--no-table-headers", "name", column])
        .unwrap();
    let line = listed.lines().find_map(|line| line.strip_prefix(&format!("{queue}\t")));
    line.unwrap_or_else(|| panic!("{queue} is not among\n{listed}"))
        .trim()
        .parse()
        .unwrap()
}

/// How many threads of this process move bytes for lapin: one for each connection.
fn io_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("lapin-io-loop")).count()
}

/// How often each message was handled to its end.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<u64, u32>>>);

impl Seen {
    fn ids(&self) -> BTreeSet<u64> {
        self.0.lock().unwrap().keys().copied().collect()
    }
}

#[subscriber("orders")]
async fn note(id: u64, State(seen): State<Seen>) {
    *seen.0.lock().unwrap().entry(id).or_default() += 1;
}

struct Place {
    server: Instance,
    proxy: Proxy,
    seen: Seen,
    running: Running,
}

impl Place {
    async fn new() -> Self {
        let server = server();
        let proxy = Proxy::to(server.port()).unwrap();
        let seen = Seen::default();
        let running = RustStream::new(AppInfo::new("faults", "1"))
            .state(seen.clone())
            .with_broker(broker(proxy.port()), |broker| {
                broker.include(note).workers(4).prefetch(200);
                broker.include(note).source(Queue::new("own").exclusive());
            })
            .start()
            .await
            .unwrap();
        Self {
            server,
            proxy,
            seen,
            running,
        }
    }

    fn state(&self) -> SubscriptionState {
        self.running.health().subscription("orders").unwrap().state
    }

    /// Publishes until it is confirmed, and waits until it is handled.
    async fn passes(&self, queue: &'static str, id: u64) {
        while self.running.publisher().publish(queue, &id).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
        while !self.seen.ids().contains(&id) {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Expects both queues to be read again, soon.
    async fn resumes(&self, after: &str, id: u64) {
        let began = Instant::now();
        let both = async { tokio::join!(self.passes("orders", id), self.passes("own", id + 1)) };
        timeout(RESUME, both).await.unwrap_or_else(|_| {
            panic!(
                "{after}: not at work again within {RESUME:?}; {:?}",
                self.running.health()
            )
        });
        eprintln!("{after}: at work again after {:?}", began.elapsed());
    }
}

/// C47: whatever ended the links, queues are read again within ten seconds, the exclusive one included, and nothing of the old links is
/// left: neither threads nor heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_resume_after_every_kind_of_outage() {
    let mut place = Place::new().await;
    place.resumes("the start", 1).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let threads = io_threads();
    assert_eq!(threads, 2, "one link to publish and one to consume");

    place.server.stop();
    place.server.start_again().unwrap();
    place.resumes("a graceful restart", 10).await;

    place.server.kill();
    let noticed = async {
        while place.state() == SubscriptionState::Running {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(ANSWER, noticed).await.expect("the health did not turn red");
    place.server.start_again().unwrap();
    place.resumes("kill -9", 20).await;

    place
        .server
        .rabbitmqctl(&["close_all_connections", "maintenance"])
        .unwrap();
    place.resumes("closed connections", 30).await;

    place.server.pause();
    sleep(Duration::from_secs(12)).await;
    place.server.resume();
    place.resumes("SIGSTOP", 40).await;

    place.proxy.cut();
    place.resumes("a cut", 50).await;

    place.proxy.stall();
    sleep(Duration::from_secs(6)).await;
    place.proxy.heal();
    place.resumes("a black hole", 60).await;

    // What the old links had ends by itself, as soon as their threads see that their sockets are gone.
    let gone = async {
        let metrics = tokio::runtime::Handle::current().metrics();
        while io_threads() > threads || metrics.num_alive_tasks() > tasks {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let left = timeout(PATIENCE, gone).await;
    let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(
        left.is_ok(),
        "{} threads, was {threads}; {alive} tasks, was {tasks}",
        io_threads()
    );
    place.running.shutdown().await.unwrap();
}

/// C47: what is in hand through a restart is finished, delivered once more, and settles nothing of the new channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_of_a_lost_channel_settle_nothing_of_the_next() {
    let mut server = server();
    let connection = broker(server.port()).connect().await.unwrap();
    let (mut fetch, mut settle) = Queue::new("jobs").open(&connection).await.unwrap();
    let bodies: Vec<_> = (0..10u8).map(|id| [id]).collect();
    let jobs: Vec<_> = bodies.iter().map(|body| Outgoing::new("jobs", body)).collect();
    connection.publisher().publish(&jobs).await.unwrap();
    let mut in_hand = Vec::new();
    while in_hand.len() < 10 {
        fetch.fetch(10, &mut in_hand).await.unwrap();
    }

    server.kill();
    server.start_again().unwrap();
    let mut again = Vec::new();
    let came_again = async {
        while again.len() < 10 {
            if fetch.fetch(10, &mut again).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        }
    };
    timeout(PATIENCE, came_again).await.expect("not all came again");
    let mut late = in_hand
        .into_iter()
        .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
        .collect();
    assert_eq!(settle.settle(&mut late).await.unwrap().stale, 10);
    assert!(
        again
            .iter()
            .all(|delivery| delivery.attempt() == 2 && delivery.is_unfinished())
    );
    let payloads: BTreeSet<_> = again.iter().map(|delivery| delivery.payload()[0]).collect();
    assert_eq!(payloads.len(), 10);
    let mut finished = again
        .into_iter()
        .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
        .collect();
    assert_eq!(settle.settle(&mut finished).await.unwrap().stale, 0);
    fetch.close().await.unwrap();
    settle.close().await.unwrap();
    assert_eq!(of_queue(&server, "jobs", "messages"), 0);
    connection.close().await;
}

async fn answer(connection: &LapinConnection, destination: &str, payload: &[u8]) -> Option<(ErrorKind, String)> {
    let publisher = connection.publisher();
    let messages = [Outgoing::new(destination, payload)];
    let answer = timeout(ANSWER, publisher.publish(&messages)).await;
    let error = answer.expect("a publish was not answered").err()?;
    Some((error.first().kind(), error.first().to_string()))
}

/// C48: every publish is answered soon, with an error of its own for each trouble, and the next good one works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_trouble_of_a_publish_has_its_own_error() {
    let mut server = server();
    let good = broker(server.port()).declare(Queue::new("orders"));
    let connection = good.connect().await.unwrap();
    let works = || async { assert_eq!(answer(&connection, "orders", b"good").await, None) };
    works().await;

    let (kind, text) = answer(&connection, "no-such-queue", b"x").await.unwrap();
    assert_eq!(kind, ErrorKind::Unroutable, "{text}");
    assert!(text.contains("no-such-queue"), "{text}");
    works().await;

    server
        .rabbitmqctl(&["eval", "application:set_env(rabbit, max_message_size, 1000)."])
        .unwrap();
    // The server reads that setting when a channel opens.
    let strict = broker(server.port()).connect().await.unwrap();
    let (kind, text) = answer(&strict, "orders", &[7; 2000]).await.unwrap();
    assert_eq!(kind, ErrorKind::TooLarge, "{text}");
    assert_eq!(answer(&strict, "orders", b"good").await, None);
    strict.close().await;
    works().await;

    server.rabbitmqctl(&["add_user", "reader", "secret"]).unwrap();
    server
        .rabbitmqctl(&["set_permissions", "reader", ".*", "^$", ".*"])
        .unwrap();
    let url = format!("amqp://reader:secret@127.0.0.1:{}/%2f", server.port());
    let reader = LapinBroker::new(url).connect().await.unwrap();
    let (kind, text) = answer(&reader, "orders", b"x").await.unwrap();
    assert_eq!(kind, ErrorKind::Denied, "{text}");
    reader.close().await;

    let wrong = format!("amqp://guest:wrong@127.0.0.1:{}/%2f", server.port());
    let refused = LapinBroker::new(wrong).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(
        !refused.is_transient() && !refused.to_string().contains("wrong"),
        "{refused}"
    );

    // Stopped in the middle, then killed: the confirm never comes.
    server.pause();
    let publishing = answer(&connection, "orders", b"lost");
    let killing = async {
        sleep(Duration::from_millis(500)).await;
        server.kill();
    };
    let (lost, ()) = tokio::join!(publishing, killing);
    let (kind, text) = lost.unwrap();
    assert!(matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout), "{text}");
    server.start_again().unwrap();
    works().await;
    connection.close().await;
}

/// C48: a server short of memory refuses publishes with its reason, acks go on, and when it is over publishes work again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_blocks_publishers_is_told_of_and_acks_still_reach_it() {
    let server = server();
    let connection = broker(server.port()).connect().await.unwrap();
    let (mut fetch, mut settle) = Queue::new("orders").open(&connection).await.unwrap();
    assert_eq!(answer(&connection, "orders", b"1").await, None);
    let mut deliveries = Vec::new();
    fetch.fetch(1, &mut deliveries).await.unwrap();

    server
        .rabbitmqctl(&["set_vm_memory_high_watermark", "0.00001"])
        .unwrap();
    let (kind, text) = answer(&connection, "orders", b"2").await.unwrap();
    assert_eq!(kind, ErrorKind::Busy, "{text}");
    let mut finished = deliveries
        .drain(..)
        .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
        .collect();
    settle.settle(&mut finished).await.unwrap();

    server.rabbitmqctl(&["set_vm_memory_high_watermark", "0.6"]).unwrap();
    let again = async {
        while answer(&connection, "orders", b"3").await.is_some() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(RESUME, again).await.expect("publishes do not work again");
    connection.close().await;
    drop((fetch, settle));
}

/// C50: links that are lost under load, twenty times, leave nothing unacked and nothing lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_unacked_after_twenty_lost_links_under_load() {
    let place = Place::new().await;
    let publisher = place.running.publisher();
    let over = Arc::new(Mutex::new(false));
    let loading = {
        let over = over.clone();
        tokio::spawn(async move {
            let mut confirmed = BTreeSet::new();
            for id in 1000.. {
                if *over.lock().unwrap() {
                    break;
                }
                if publisher.publish("orders", &id).await.is_ok() {
                    confirmed.insert(id);
                } else {
                    sleep(Duration::from_millis(10)).await;
                }
            }
            confirmed
        })
    };
    for round in 0..20u64 {
        sleep(Duration::from_millis(100)).await;
        place.proxy.cut();
        timeout(RESUME, place.passes("orders", round))
            .await
            .unwrap_or_else(|_| panic!("cut {round}: not at work again"));
    }
    *over.lock().unwrap() = true;
    let confirmed = loading.await.unwrap();
    let all = async {
        while !place.seen.ids().is_superset(&confirmed) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let seen = timeout(PATIENCE, all).await;
    let missing: Vec<_> = confirmed.difference(&place.seen.ids()).copied().collect();
    assert!(
        seen.is_ok(),
        "of {} confirmed, never handled: {missing:?}",
        confirmed.len()
    );
    let settled = async {
        while of_queue(&place.server, "orders", "messages") > 0 {
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(RESUME, settled).await.expect("messages stay unacked");
    place.running.shutdown().await.unwrap();
}

/// A handler that is slower than the server grants is told apart from other troubles, and what it had comes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_the_server_gave_up_waiting_for_is_told_so_and_heals() {
    let server = server();
    for (name, value) in [("consumer_timeout", "1000"), ("channel_tick_interval", "500")] {
        let set = format!("application:set_env(rabbit, {name}, {value}).");
        server.rabbitmqctl(&["eval", &set]).unwrap();
    }
    let connection = broker(server.port()).connect().await.unwrap();
    let (mut fetch, mut settle) = Queue::new("slow").open(&connection).await.unwrap();
    assert_eq!(answer(&connection, "slow", b"1").await, None);
    let mut in_hand = Vec::new();
    fetch.fetch(1, &mut in_hand).await.unwrap();
    let told = timeout(PATIENCE, fetch.fetch(1, &mut in_hand))
        .await
        .expect("the server waits");
    let error = told.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("consumer_timeout"),
        "{error}"
    );

    let mut again = Vec::new();
    let came_again = async {
        while again.is_empty() {
            if fetch.fetch(1, &mut again).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        }
    };
    timeout(RESUME, came_again).await.expect("it did not come again");
    assert_eq!(again[0].attempt(), 2);
    let mut late = in_hand
        .drain(..)
        .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
        .collect();
    assert_eq!(settle.settle(&mut late).await.unwrap().stale, 1);
    let mut finished = again
        .drain(..)
        .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
        .collect();
    assert_eq!(settle.settle(&mut finished).await.unwrap().stale, 0);
    fetch.close().await.unwrap();
    settle.close().await.unwrap();
    assert_eq!(of_queue(&server, "slow", "messages"), 0);
    connection.close().await;
}

/// C52: a queue that is there with other arguments is one clear error that names the argument; taken as it is, it works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_declared_otherwise_is_an_error_that_names_the_argument() {
    let server = server();
    let theirs = broker(server.port()).declare(Queue::new("orders").max_length(10));
    let theirs = theirs.connect().await.unwrap();
    let connection = broker(server.port()).connect().await.unwrap();
    let refused = Queue::new("orders").open(&connection).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(!refused.is_transient());
    let text = refused.to_string();
    assert!(text.contains("`x-max-length`") && text.contains("Passive"), "{text}");

    let started = RustStream::new(AppInfo::new("faults", "1"))
        .state(Seen::default())
        .with_broker(broker(server.port()), |broker| {
            broker.include(note);
        })
        .start()
        .await;
    let Err(error) = started else {
        panic!("an app started over a queue that is not its own")
    };
    let text = error.source().map(ToString::to_string).unwrap_or_default();
    assert!(text.contains("x-max-length"), "{text}");

    for taken in [Declaration::Passive, Declaration::Never] {
        let source = Queue::new("orders").declaration(taken);
        let (mut fetch, mut settle) = source.open(&connection).await.unwrap();
        assert_eq!(answer(&connection, "orders", b"1").await, None);
        let mut deliveries = Vec::new();
        fetch.fetch(1, &mut deliveries).await.unwrap();
        let mut finished = deliveries
            .drain(..)
            .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
            .collect();
        settle.settle(&mut finished).await.unwrap();
        fetch.close().await.unwrap();
        settle.close().await.unwrap();
    }
    let missing = Queue::new("no-such-queue").declaration(Declaration::Passive);
    let refused = missing.open(&connection).await.unwrap_err();
    assert!(
        !refused.is_transient() && refused.to_string().contains("no-such-queue"),
        "{refused}"
    );
    connection.close().await;
    theirs.close().await;
}

/// C53: an app without its server waits for it and consumes soon after it came; told to fail fast, it ends with an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_server_is_waited_for_or_told_of() {
    let mut server = server();
    server.kill();
    let seen = Seen::default();
    let app = |fail_fast: bool| {
        let builder = RustStream::new(AppInfo::new("faults", "1")).state(seen.clone());
        let builder = if fail_fast { builder.fail_fast() } else { builder };
        builder.with_broker(broker(server.port()), |broker| {
            broker.include(note);
        })
    };
    let began = Instant::now();
    assert!(app(true).start().await.is_err());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());

    let starting = tokio::spawn(app(false).start());
    sleep(Duration::from_secs(5)).await;
    server.start_again().unwrap();
    let running = timeout(Duration::from_secs(8), starting)
        .await
        .expect("not started")
        .unwrap()
        .unwrap();
    running.publisher().publish("orders", &1u64).await.unwrap();
    let handled = async {
        while seen.ids().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), handled).await.expect("not handled");
    running.shutdown().await.unwrap();
}

/// Fails the message 0, and says of all others that they were handled.
#[subscriber("guarded")]
async fn fail_zero(id: u64, State(seen): State<Seen>) -> Result<(), String> {
    if id == 0 {
        return Err("not today".to_owned());
    }
    *seen.0.lock().unwrap().entry(id).or_default() += 1;
    Ok(())
}

/// Retries and dead letters that a user has no right to keep hold up nothing else, the health says why, and with the right they go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_user_may_not_declare_holds_up_no_acks_and_is_told_of() {
    let server = server();
    let guests = broker(server.port()).declare(Queue::new("guarded"));
    let connection = guests.connect().await.unwrap();
    server.rabbitmqctl(&["add_user", "worker", "secret"]).unwrap();
    let permit = |configure: &str| {
        server
            .rabbitmqctl(&["set_permissions", "worker", configure, ".*", ".*"])
            .unwrap();
    };
    permit("^$");
    let url = format!("amqp://worker:secret@127.0.0.1:{}/%2f", server.port());
    let seen = Seen::default();
    let running = RustStream::new(AppInfo::new("guarded", "1"))
        .state(seen.clone())
        .with_broker(LapinBroker::new(url), |broker| {
            // Longer than the server is made to keep a message back.
            let retry = Retry::fixed(Duration::from_hours(300 * 24)).attempts(3);
            let source = Queue::new("guarded").declaration(Declaration::Passive);
            broker.include(fail_zero).source(source).retry(retry).prefetch(10);
        })
        .start()
        .await
        .unwrap();
    let health = || running.health().subscription("guarded").unwrap().clone();
    let patient = async |until: &dyn Fn() -> bool, what: &str| {
        let waiting = async {
            while !until() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let over = timeout(PATIENCE, waiting).await;
        over.unwrap_or_else(|_| panic!("{what}: {:?}", health()));
    };
    for body in [&b"0"[..], b"not a number"] {
        assert_eq!(answer(&connection, "guarded", body).await, None);
    }
    patient(&|| health().state == SubscriptionState::Degraded, "not told of").await;
    // More than there is room for at a time: they are acked.
    for id in 1..=30 {
        assert_eq!(answer(&connection, "guarded", id.to_string().as_bytes()).await, None);
    }
    patient(&|| seen.ids().len() == 30, "held up").await;
    patient(&|| health().in_hand == 2, "not settled").await;
    assert_eq!(health().state, SubscriptionState::Degraded);
    let reason = health().reason.unwrap();
    assert!(reason.contains("refused for user 'worker'"), "{reason}");

    permit(".*");
    patient(&|| health().state == SubscriptionState::Running, "still degraded").await;
    patient(&|| health().in_hand == 0, "not settled with the right").await;
    assert_eq!(of_queue(&server, "guarded", "messages"), 0);
    assert_eq!(of_queue(&server, "guarded.dead", "messages"), 1);
    let seen = seen.0.lock().unwrap().clone();
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    running.shutdown().await.unwrap();
    connection.close().await;
}

//! Servers that are restarted, killed, stopped or cut off, and services that stop or are fed rubbish: nothing that was confirmed is
//! lost, and health says what is true.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(clippy::print_stderr, reason = "how soon a service resumed is worth seeing")]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::app::{Running, SubscriptionState};
use ruststream::message::{HeaderMap, Outgoing, header};
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection, Delivery, Publish};
use ruststream_rumqttc::{MqttBroker, TopicFilter};
use servers::{Instance, Proxy};
use support::{PATIENCE, Reader, broker, payloads, publish, server, until};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// How soon a service has to work again when an outage is over.
const RESUME: Duration = Duration::from_secs(10);
/// How soon its health has to be red.
const NOTICE: Duration = Duration::from_secs(5);
/// How long an outage lasts: longer than the silence after which a link counts as lost.
const OUTAGE: Duration = Duration::from_secs(5);

/// How often each message was handled to its end.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<u64, u32>>>);

impl Seen {
    fn has(&self, id: u64) -> bool {
        self.0.lock().unwrap().contains_key(&id)
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[subscriber("orders")]
async fn note(id: u64, State(seen): State<Seen>) {
    *seen.0.lock().unwrap().entry(id).or_default() += 1;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Told to end; it stores what it has, if it stores.
    Restart,
    Kill,
    Stop,
    BlackHole,
}

struct Place {
    server: Instance,
    proxy: Proxy,
    seen: Seen,
    running: Running,
}

impl Place {
    async fn new(durable: bool) -> Self {
        let server = server(durable);
        let proxy = Proxy::to(server.port()).unwrap();
        let seen = Seen::default();
        let running = service(quick(proxy.port()), &seen).await;
        Self {
            server,
            proxy,
            seen,
            running,
        }
    }

    fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Restart => self.server.stop(),
            Fault::Kill => self.server.kill(),
            Fault::Stop => self.server.pause(),
            Fault::BlackHole => self.proxy.stall(),
        }
    }

    fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Restart | Fault::Kill => self.server.start_again().unwrap(),
            Fault::Stop => self.server.resume(),
            Fault::BlackHole => self.proxy.heal(),
        }
    }

    fn state(&self) -> SubscriptionState {
        self.running.health().subscription("orders").unwrap().state
    }

    async fn publish(&self, id: u64) {
        let publishing = async {
            while self.running.publisher().publish("orders", &id).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, publishing)
            .await
            .expect("a publish was never confirmed");
    }
}

/// Links that are found out in 3 s.
fn quick(port: u16) -> MqttBroker {
    broker(port)
        .keep_alive(Duration::from_secs(2))
        .connect_timeout(Duration::from_secs(2))
        .call_timeout(Duration::from_secs(2))
        .publish_timeout(Duration::from_secs(4))
}

async fn service(broker: MqttBroker, seen: &Seen) -> Running {
    RustStream::new(AppInfo::new("outage", "1"))
        .state(seen.clone())
        .with_broker(broker, |broker| {
            broker.include(note).workers(4);
        })
        .start()
        .await
        .unwrap()
}

/// Publishes all the while; answers what was confirmed.
async fn load(publisher: Publisher, first: u64, over: Arc<AtomicBool>) -> Vec<u64> {
    let mut confirmed = Vec::new();
    let mut id = first;
    while !over.load(Ordering::Relaxed) {
        match publisher.publish("orders", &id).await {
            Ok(()) => confirmed.push(id),
            Err(error) => assert!(error.first().is_transient(), "{error}"),
        }
        sleep(Duration::from_millis(2)).await;
        id += 1;
    }
    confirmed
}

/// C55, C59: red while nothing can be handled, green when something is; nothing confirmed is lost, save what the server itself loses.
async fn outage(fault: Fault, durable: bool, keeps_all: bool) {
    let mut place = Place::new(durable).await;
    place.publish(0).await;
    until("the first message", PATIENCE, || place.seen.has(0)).await;
    let over = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = (1..=4)
        .map(|task| tokio::spawn(load(place.running.publisher(), task * 1_000_000, over.clone())))
        .collect();
    until("a load", PATIENCE, || place.seen.count() > 100).await;

    let began = Instant::now();
    place.begin(fault);
    until("red health", NOTICE, || place.state() != SubscriptionState::Running).await;
    tokio::time::sleep_until(began + OUTAGE).await;
    assert_eq!(
        place.state(),
        SubscriptionState::Degraded,
        "green while nothing could be handled"
    );
    place.end(fault);

    let ended = Instant::now();
    place.publish(1).await;
    until("a message after the outage", RESUME, || place.seen.has(1)).await;
    eprintln!("{fault:?}, durable {durable}: works again after {:?}", ended.elapsed());
    until("green health", RESUME, || place.state() == SubscriptionState::Running).await;
    over.store(true, Ordering::Relaxed);
    let mut confirmed = vec![0, 1];
    for load in loads {
        confirmed.extend(load.await.unwrap());
    }
    if keeps_all {
        until("all that was confirmed", PATIENCE, || {
            confirmed.iter().all(|id| place.seen.has(*id))
        })
        .await;
    } else {
        let last = *confirmed.last().unwrap();
        until("the last", PATIENCE, || place.seen.has(last)).await;
    }
    place.running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_that_stores_loses_nothing() {
    outage(Fault::Restart, true, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_that_forgets_is_subscribed_to_again() {
    outage(Fault::Restart, false, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_is_subscribed_to_again() {
    // Mosquitto confirms before it stores, so under load a kill may lose what it confirmed last.
    outage(Fault::Kill, true, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_loses_nothing() {
    outage(Fault::Stop, false, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_loses_nothing() {
    outage(Fault::BlackHole, false, true).await;
}

/// What a killed server had stored comes, and what was in hand comes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_that_had_stored_loses_nothing() {
    let mut server = server(true);
    let connection = quick(server.port()).client_id("billing").connect().await.unwrap();
    let mut reader = Reader::open(TopicFilter::new("orders"), &connection).await;
    let all: Vec<_> = (0..50).map(|number| number.to_string()).collect();
    publish(&connection, "orders", &all).await;
    let mut in_hand = reader.take(50).await;
    let rest = in_hand.split_off(10);
    reader.ack(in_hand).await;
    connection.ping().await.unwrap();
    // Stored by the number of changes, in the turn of its loop after they came: the answer to a second ping is a turn later.
    for _ in 0..3 {
        connection.ping().await.unwrap();
    }
    server.kill();
    server.start_again().unwrap();
    let again = reader.take(40).await;
    assert_eq!(payloads(&again), all[10..]);
    assert_eq!(reader.ack(rest).await.stale, 40);
    reader.ack(again).await;
    assert!(reader.is_quiet_for(Duration::from_millis(300)).await);
}

/// C55: acknowledgements stay away, the session is lost, and more is on its way than there are places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_publish_ends_though_the_session_is_lost() {
    let mut server = server(false);
    let proxy = Proxy::to(server.port()).unwrap();
    let connection = quick(proxy.port()).connect().await.unwrap();
    proxy.lose_answers();
    let publishes: Vec<_> = (0..2_000u32)
        .map(|number| {
            let publisher = connection.publisher();
            tokio::spawn(async move {
                let payload = number.to_le_bytes();
                publisher.publish(&[Outgoing::new("orders", &payload)]).await.is_ok()
            })
        })
        .collect();
    // More than a window of them is on the wire.
    until("the window on the wire", PATIENCE, || proxy.passed() > 1024 * 15).await;
    server.stop();
    server.start_again().unwrap();
    proxy.heal();
    let ending = async {
        let mut confirmed = 0;
        for publish in publishes {
            confirmed += usize::from(publish.await.unwrap());
        }
        confirmed
    };
    let confirmed = timeout(Duration::from_secs(30), ending)
        .await
        .expect("a publish never ended");
    eprintln!("{confirmed} of 2000 confirmed");
    publish(&connection, "orders", &["after"]).await;
}

/// What publishes from a handler, for C57.
#[derive(Clone, Default)]
struct Relay {
    seen: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

#[subscriber("in")]
async fn relay(id: u64, out: Out<u64>, State(state): State<Relay>) {
    for copy in 0..10 {
        if out.publish("out", &(id * 10 + copy)).await.is_err() {
            state.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[subscriber("out")]
async fn count(_id: u64, State(state): State<Relay>) {
    state.seen.fetch_add(1, Ordering::Relaxed);
}

/// C57: handlers publish on the connection that brings their messages, with few places on the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_publish_do_not_stall_the_link() {
    let server = server(false);
    let state = Relay::default();
    let running = RustStream::new(AppInfo::new("relay", "1"))
        .state(state.clone())
        .with_broker(broker(server.port()).receive_maximum(10), |broker| {
            broker.include(relay).workers(4);
            broker.include(count);
        })
        .start()
        .await
        .unwrap();
    let ids: Vec<u64> = (0..1_000).collect();
    running.publisher().publish_many("in", &ids).await.unwrap();
    until("10,000 messages", Duration::from_mins(1), || {
        state.seen.load(Ordering::Relaxed) >= 10_000
    })
    .await;
    assert_eq!(state.failed.load(Ordering::Relaxed), 0);
    running.shutdown().await.unwrap();
}

#[derive(Debug, Deserialize)]
struct Order {
    id: u64,
}

#[subscriber("parcels")]
async fn take_order(order: Order, State(seen): State<Seen>) {
    *seen.0.lock().unwrap().entry(order.id).or_default() += 1;
}

/// C14: what cannot be read becomes a dead letter as it came, and does not hold up what is behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_is_set_aside_byte_for_byte() {
    let server = server(false);
    let other = broker(server.port()).connect().await.unwrap();
    let mut dead = Reader::open(TopicFilter::new("parcels.dead"), &other).await;
    let seen = Seen::default();
    let running = RustStream::new(AppInfo::new("parcels", "1"))
        .state(seen.clone())
        .with_broker(broker(server.port()), |broker| {
            broker.include(take_order);
        })
        .start()
        .await
        .unwrap();
    let bytes: HeaderMap = [(header::CONTENT_TYPE, &b"\xff\xfe"[..])].into_iter().collect();
    let unknown: HeaderMap = [(header::CONTENT_TYPE, "application/x-unknown")].into_iter().collect();
    let rubbish = [
        Outgoing::new("parcels", b"{"),
        Outgoing::new("parcels", br#"{"id":"x"}"#),
        Outgoing::new("parcels", b""),
        Outgoing::new("parcels", br#"{"id":1}"#).with_headers(&bytes),
        Outgoing::new("parcels", br#"{"id":2}"#).with_headers(&unknown),
    ];
    other.publisher().publish(&rubbish).await.unwrap();
    let good: Vec<_> = (100..200).map(|id| format!(r#"{{"id":{id}}}"#)).collect();
    publish(&other, "parcels", &good).await;
    until("the good ones", PATIENCE, || seen.count() == 100).await;
    let letters = dead.take(5).await;
    let mut found: Vec<_> = letters.iter().map(|letter| letter.payload().to_vec()).collect();
    let mut sent: Vec<_> = rubbish.iter().map(|message| message.payload().to_vec()).collect();
    found.sort();
    sent.sort();
    assert_eq!(found, sent);
    for letter in &letters {
        assert_eq!(
            letter.headers().get_str(header::DEAD_ATTEMPTS),
            Some("1"),
            "{:?}",
            letter.headers()
        );
    }
    assert!(
        letters
            .iter()
            .any(|letter| letter.headers().get(header::CONTENT_TYPE) == Some(b"\xff\xfe"))
    );
    dead.ack(letters).await;
    assert_eq!(
        running.health().subscription("parcels").unwrap().state,
        SubscriptionState::Running
    );
    running.shutdown().await.unwrap();
}

#[derive(Clone)]
struct Jobs {
    begun: Arc<AtomicUsize>,
    done: Seen,
    gate: Arc<Semaphore>,
}

/// Even ones wait for the gate, odd ones for ever.
#[subscriber("jobs")]
async fn job(id: u64, State(jobs): State<Jobs>) {
    jobs.begun.fetch_add(1, Ordering::Relaxed);
    if id.is_multiple_of(2) {
        jobs.gate.acquire().await.unwrap().forget();
    } else {
        std::future::pending::<()>().await;
    }
    *jobs.done.0.lock().unwrap().entry(id).or_default() += 1;
}

#[subscriber("jobs")]
async fn any_job(id: u64, State(seen): State<Seen>) {
    *seen.0.lock().unwrap().entry(id).or_default() += 1;
}

/// C20: what ends within the grace is acknowledged and never comes again; all else comes to the next process of that name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_stops_leaves_what_it_did_not_end() {
    let server = server(false);
    let named = broker(server.port()).client_id("jobs");
    let jobs = Jobs {
        begun: Arc::default(),
        done: Seen::default(),
        gate: Arc::new(Semaphore::new(0)),
    };
    let running = RustStream::new(AppInfo::new("jobs", "1"))
        .state(jobs.clone())
        .shutdown_grace(Duration::from_secs(1))
        .with_broker(named.clone(), |broker| {
            broker.include(job).workers(20);
        })
        .start()
        .await
        .unwrap();
    let ids: Vec<u64> = (0..500).collect();
    running.publisher().publish_many("jobs", &ids).await.unwrap();
    until("20 in hand", PATIENCE, || jobs.begun.load(Ordering::Relaxed) == 20).await;
    running.stop();
    jobs.gate.add_permits(10);
    let stopping = Instant::now();
    running.shutdown().await.unwrap();
    assert!(stopping.elapsed() < Duration::from_secs(6), "{:?}", stopping.elapsed());
    let done = jobs.done.0.lock().unwrap().clone();
    assert_eq!(done.len(), 10);

    let seen = Seen::default();
    let next = RustStream::new(AppInfo::new("jobs", "2"))
        .state(seen.clone())
        .with_broker(named, |broker| {
            broker.include(any_job);
        })
        .start()
        .await
        .unwrap();
    let began = Instant::now();
    until("all the others", PATIENCE, || seen.count() == 490).await;
    eprintln!("the next process had them after {:?}", began.elapsed());
    assert!(done.keys().all(|id| !seen.has(*id)), "what was acknowledged came again");
    next.shutdown().await.unwrap();
}

#[subscriber("doubles", reply)]
async fn double(number: u64) -> u64 {
    number * 2
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered() {
    let server = server(false);
    let app = |name| RustStream::new(AppInfo::new(name, "1"));
    let answering = app("answering").with_broker(broker(server.port()), |broker| {
        broker.include(double);
    });
    let answering = answering.start().await.unwrap();
    let asking = app("asking").with_broker(broker(server.port()), |_| {});
    let asking = asking.start().await.unwrap();
    let client = asking.client().await.unwrap();
    for number in 0..20u64 {
        let answer = client
            .request::<u64, u64>("doubles", &number)
            .timeout(PATIENCE)
            .await
            .unwrap();
        assert_eq!(answer, number * 2);
    }
    asking.shutdown().await.unwrap();
    answering.shutdown().await.unwrap();
}

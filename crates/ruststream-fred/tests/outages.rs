//! Servers that are killed, stopped, cut off or made to wait: a service resumes, and says meanwhile that it does not work (C40).

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::app::{Running, SubscriptionState};
use ruststream::prelude::*;
use ruststream::publish::Publisher;
use ruststream_fred::{RedisBroker, RedisStream};
use servers::Proxy;
use support::{PATIENCE, Server, cli};
use tokio::time::{Instant, sleep, timeout};

/// How long an outage lasts: longer than any deadline of a call.
const OUTAGE: Duration = Duration::from_secs(6);

/// How soon a service has to work again when it is over.
const RESUME: Duration = Duration::from_secs(10);

/// How soon its health has to be red.
const NOTICE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Stop,
    BlackHole,
    ClientPause,
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<u64>>>);

#[subscriber("orders")]
async fn note(id: u64, State(seen): State<Seen>) {
    seen.0.lock().unwrap().insert(id);
}

struct Place {
    server: Server,
    proxy: Proxy,
    seen: Seen,
    running: Running,
}

impl Place {
    async fn new() -> Self {
        let server = Server::durable();
        let proxy = Proxy::to(server.instance.port()).unwrap();
        let seen = Seen::default();
        let broker = RedisBroker::standalone(format!("redis://127.0.0.1:{}", proxy.port()))
            .command_timeout(Duration::from_millis(1500));
        let running = RustStream::new(AppInfo::new("outage", "1"))
            .state(seen.clone())
            .with_broker(broker, |broker| {
                let source = RedisStream::new("orders").lease(Duration::from_secs(4));
                broker.include(note).source(source).workers(4);
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

    fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.server.instance.kill(),
            Fault::Stop => self.server.instance.pause(),
            Fault::BlackHole => self.proxy.stall(),
            Fault::ClientPause => {
                let millis = OUTAGE.as_millis().to_string();
                cli(self.server.instance.port(), &["CLIENT", "PAUSE", &millis, "ALL"]);
            }
        }
    }

    fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.server.instance.start_again().unwrap(),
            Fault::Stop => self.server.instance.resume(),
            Fault::BlackHole => self.proxy.heal(),
            Fault::ClientPause => {}
        }
    }

    fn state(&self) -> SubscriptionState {
        self.running.health().subscription("orders").unwrap().state
    }

    /// Publishes until it is confirmed.
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

    async fn sees(&self, wanted: &BTreeSet<u64>) {
        let seeing = async {
            while !self.seen.0.lock().unwrap().is_superset(wanted) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = timeout(PATIENCE, seeing).await.is_ok();
        let seen = self.seen.0.lock().unwrap().clone();
        let missing: Vec<_> = wanted.difference(&seen).collect();
        assert!(in_time, "confirmed, and never handled: {missing:?}");
    }
}

/// Publishes from so many tasks all the while; answers what was confirmed.
async fn load(publisher: Publisher, first: u64, over: Arc<Mutex<bool>>) -> BTreeSet<u64> {
    let mut confirmed = BTreeSet::new();
    let mut id = first;
    while !*over.lock().unwrap() {
        match publisher.publish("orders", &id).await {
            Ok(()) => {
                confirmed.insert(id);
                sleep(Duration::from_millis(1)).await;
            }
            Err(error) => {
                assert!(error.first().is_transient(), "{error}");
                sleep(Duration::from_millis(20)).await;
            }
        }
        id += 1;
    }
    confirmed
}

async fn outage(fault: Fault, is_loaded: bool) {
    let mut place = Place::new().await;
    place.publish(0).await;
    place.sees(&BTreeSet::from([0])).await;
    let over = Arc::new(Mutex::new(false));
    let loads: Vec<_> = (1..=4)
        .filter(|_| is_loaded)
        .map(|task| tokio::spawn(load(place.running.publisher(), task * 1_000_000, Arc::clone(&over))))
        .collect();
    if is_loaded {
        sleep(Duration::from_millis(500)).await;
    }

    let began = Instant::now();
    place.begin(fault);
    let noticing = async {
        while place.state() == SubscriptionState::Running {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(NOTICE, noticing).await.expect("the health stayed green");
    tokio::time::sleep_until(began + OUTAGE).await;
    assert_eq!(
        place.state(),
        SubscriptionState::Degraded,
        "green while nothing could be handled"
    );
    place.end(fault);

    let ended = Instant::now();
    place.publish(1).await;
    place.sees(&BTreeSet::from([1])).await;
    let took = ended.elapsed();
    assert!(took < RESUME, "it took {took:?} to work again");
    let greening = async {
        while place.state() != SubscriptionState::Running {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(RESUME, greening).await.expect("the health stayed red");

    *over.lock().unwrap() = true;
    let mut confirmed = BTreeSet::from([0, 1]);
    for load in loads {
        confirmed.extend(load.await.unwrap());
    }
    place.sees(&confirmed).await;
    place.running.shutdown().await.unwrap();
    assert_eq!(place.server.pending("orders", "ruststream"), (0, 0));
}

macro_rules! outages {
    ($($name:ident: $fault:ident, $loaded:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                outage(Fault::$fault, $loaded).await;
            }
        )*
    };
}

outages! {
    a_killed_server_loses_nothing_that_was_confirmed: Kill, true;
    a_killed_server_is_noticed_when_nothing_happens: Kill, false;
    a_stopped_server_is_noticed_under_load: Stop, true;
    a_stopped_server_is_noticed_when_nothing_happens: Stop, false;
    a_black_hole_is_noticed_under_load: BlackHole, true;
    a_black_hole_is_noticed_when_nothing_happens: BlackHole, false;
    clients_made_to_wait_notice_under_load: ClientPause, true;
    clients_made_to_wait_notice_when_nothing_happens: ClientPause, false;
}

/// The server is not there when the service starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_starts_first_waits_for_its_server() {
    let mut server = Server::start();
    server.instance.kill();
    let broker = server.broker().connect_timeout(Duration::from_millis(300));
    let seen = Seen::default();
    let starting = RustStream::new(AppInfo::new("outage", "1"))
        .state(seen.clone())
        .with_broker(broker, |broker| {
            broker.include(note);
        })
        .start();
    let starting = tokio::spawn(starting);
    sleep(Duration::from_secs(1)).await;
    server.instance.start_again().unwrap();
    let began = Instant::now();
    let running = timeout(PATIENCE, starting)
        .await
        .expect("it never started")
        .unwrap()
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    running.publisher().publish("orders", &7u64).await.unwrap();
    let seeing = async {
        while !seen.0.lock().unwrap().contains(&7) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, seeing).await.expect("it handles nothing");
    running.shutdown().await.unwrap();
}

//! Clusters and sentinels whose primaries are killed or stopped, and slots that move: a service resumes, and says meanwhile that it does
//! not work (C40).

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::app::{Running, SubscriptionState};
use ruststream::prelude::*;
use ruststream::publish::Publisher;
use ruststream_fred::{RedisBroker, RedisList, RedisStream};
use servers::{Instance, Kind, RedisNodes, Settings};
use support::cli;
use tokio::time::{Instant, sleep, timeout};

/// How soon a service has to work again when a new primary is there.
const RESUME: Duration = Duration::from_secs(10);

/// How long the servers may take to choose one.
const ELECTION: Duration = Duration::from_secs(30);

const NAMES: [&str; 2] = ["orders", "jobs"];

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<u64>>>);

#[subscriber("orders")]
async fn note(id: u64, State(seen): State<Seen>) {
    seen.0.lock().unwrap().insert(id);
}

struct Place {
    instance: Instance,
    running: Running,
    seen: Seen,
}

impl Place {
    async fn new(kind: Kind) -> Self {
        let instance = Instance::start(kind, Settings::default()).unwrap();
        let broker = match kind {
            Kind::RedisCluster => RedisBroker::cluster([instance.url()]),
            _ => RedisBroker::sentinel([instance.url()], "main"),
        };
        let broker = broker
            .command_timeout(Duration::from_millis(1500))
            .connect_timeout(Duration::from_millis(1500));
        let seen = Seen::default();
        let running = RustStream::new(AppInfo::new("failover", "1"))
            .state(seen.clone())
            .with_broker(broker, |broker| {
                let lease = Duration::from_secs(4);
                broker.include(note).source(RedisStream::new(NAMES[0]).lease(lease));
                broker.include(note).source(RedisList::new(NAMES[1]).lease(lease));
            })
            .start()
            .await
            .unwrap();
        Self {
            instance,
            running,
            seen,
        }
    }

    fn nodes(&self) -> RedisNodes<'_> {
        RedisNodes::of(&self.instance)
    }

    /// The node that serves a key now, and is not `but`.
    fn owner(&self, key: &str, but: Option<u16>) -> Option<u16> {
        self.nodes()
            .ports()
            .unwrap()
            .into_iter()
            .filter(|port| Some(*port) != but)
            .find(|port| {
                let answer = said(*port, &["XLEN", key]);
                let role = said(*port, &["ROLE"]);
                answer.trim().parse::<u64>().is_ok() && role.starts_with("master")
            })
    }

    async fn new_owner(&self, key: &str, old: u16) -> u16 {
        let until = Instant::now() + ELECTION;
        loop {
            if let Some(port) = self.owner(key, Some(old)) {
                return port;
            }
            assert!(Instant::now() < until, "no new primary was chosen");
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn is_running(&self, name: &str) -> bool {
        self.running.health().subscription(name).unwrap().state == SubscriptionState::Running
    }

    async fn turns(&self, name: &str, wanted: bool, most: Duration) {
        let turning = async {
            while self.is_running(name) != wanted {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = timeout(most, turning).await.is_ok();
        assert!(
            in_time,
            "the health of {name} did not turn {}",
            if wanted { "green" } else { "red" }
        );
    }

    async fn canary(&self, name: &'static str, id: u64) {
        publish(&self.running.publisher(), name, id).await;
        while !self.seen.0.lock().unwrap().contains(&id) {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Publishes until it is confirmed.
async fn publish(publisher: &Publisher, name: &'static str, id: u64) {
    let form = if name == NAMES[0] {
        ruststream_fred::Form::Stream
    } else {
        ruststream_fred::Form::List
    };
    let options = || ruststream_fred::RedisPublish::default().form(form);
    while let Err(error) = publisher.publish(name, &id).options(options()).await {
        assert!(error.first().is_transient(), "{error}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// What a node says, though it may be dead, stopped or a replica.
fn said(port: u16, words: &[&str]) -> String {
    let output = std::process::Command::new("timeout")
        .args(["0.5", "redis-cli", "-p", &port.to_string()])
        .args(words)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[derive(Clone, Copy)]
enum Fault {
    Kill,
    Stop,
}

async fn fails_over(kind: Kind, fault: Fault) {
    let place = Place::new(kind).await;
    for (id, name) in (1..).zip(NAMES) {
        timeout(RESUME, place.canary(name, id))
            .await
            .expect("it works at first");
    }
    let old = place.owner(NAMES[0], None).unwrap();
    match fault {
        Fault::Kill => place.nodes().kill(old).unwrap(),
        Fault::Stop => place.nodes().pause(old).unwrap(),
    }
    place.turns(NAMES[0], false, Duration::from_secs(6)).await;
    let new = place.new_owner(NAMES[0], old).await;
    assert_ne!(new, old);

    let chosen = Instant::now();
    let canaries = async { tokio::join!(place.canary(NAMES[0], 11), place.canary(NAMES[1], 12)) };
    let in_time = timeout(RESUME, canaries).await.is_ok();
    assert!(
        in_time,
        "nothing was handled for {RESUME:?} after the new primary was chosen"
    );
    place.turns(NAMES[0], true, RESUME).await;
    assert!(chosen.elapsed() < RESUME * 2);

    // The old one comes back, and is a replica.
    if let Fault::Stop = fault {
        place.nodes().resume(old).unwrap();
        for id in 21..26 {
            timeout(RESUME, place.canary(NAMES[0], id))
                .await
                .expect("it works with the old primary back");
            sleep(Duration::from_millis(300)).await;
        }
    }
    place.running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_primary_is_killed_goes_on() {
    fails_over(Kind::RedisCluster, Fault::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_primary_is_stopped_goes_on() {
    fails_over(Kind::RedisCluster, Fault::Stop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_choose_a_new_primary_when_theirs_is_killed() {
    fails_over(Kind::RedisSentinel, Fault::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_choose_a_new_primary_when_theirs_is_stopped() {
    fails_over(Kind::RedisSentinel, Fault::Stop).await;
}

/// The slot of a stream moves to another node, key by key, while messages flow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_followed_when_its_slot_moves() {
    let place = Place::new(Kind::RedisCluster).await;
    timeout(RESUME, place.canary(NAMES[0], 1))
        .await
        .expect("it works at first");
    let over = Arc::new(Mutex::new(false));
    let load = {
        let (publisher, over) = (place.running.publisher(), Arc::clone(&over));
        tokio::spawn(async move {
            let mut confirmed = BTreeSet::new();
            for id in 1000.. {
                if *over.lock().unwrap() {
                    break;
                }
                publish(&publisher, NAMES[0], id).await;
                confirmed.insert(id);
                sleep(Duration::from_millis(2)).await;
            }
            confirmed
        })
    };
    let source = place.owner(NAMES[0], None).unwrap();
    let ports = place.nodes().ports().unwrap();
    let target = ports
        .iter()
        .copied()
        .find(|port| *port != source && said(*port, &["ROLE"]).starts_with("master"))
        .unwrap();
    let id = |port: u16| cli(port, &["CLUSTER", "MYID"]).trim().to_owned();
    let slot = cli(source, &["CLUSTER", "KEYSLOT", NAMES[0]]).trim().to_owned();
    cli(target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]);
    cli(source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]);
    loop {
        let keys = cli(source, &["CLUSTER", "GETKEYSINSLOT", &slot, "1"]);
        let Some(key) = keys.lines().next().filter(|key| !key.is_empty()) else {
            break;
        };
        cli(source, &["MIGRATE", "127.0.0.1", &target.to_string(), key, "0", "5000"]);
        sleep(Duration::from_millis(50)).await;
    }
    for port in ports
        .iter()
        .filter(|port| said(**port, &["ROLE"]).starts_with("master"))
    {
        cli(*port, &["CLUSTER", "SETSLOT", &slot, "NODE", &id(target)]);
    }
    assert_eq!(place.owner(NAMES[0], None), Some(target));
    timeout(RESUME, place.canary(NAMES[0], 2))
        .await
        .expect("it is not followed");
    *over.lock().unwrap() = true;
    let confirmed = load.await.unwrap();
    let seen = async {
        while !place.seen.0.lock().unwrap().is_superset(&confirmed) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(RESUME * 2, seen).await.expect("some were lost on the way");
    place.running.shutdown().await.unwrap();
}

/// How long all nodes are silent: longer than any deadline of a call.
const SILENCE: Duration = Duration::from_secs(6);

#[derive(Clone, Copy)]
enum Silence {
    /// Every process stands still.
    Stop,
    ClientPause,
}

/// All nodes fall silent at once, so that there is no one to fail over to, or whoever is chosen is as silent.
async fn falls_silent(kind: Kind, silence: Silence) {
    let place = Place::new(kind).await;
    for (id, name) in (1..).zip(NAMES) {
        timeout(RESUME, place.canary(name, id))
            .await
            .expect("it works at first");
    }
    match silence {
        Silence::Stop => place.instance.pause(),
        Silence::ClientPause => {
            for port in place.nodes().ports().unwrap() {
                said(port, &["CLIENT", "PAUSE", &SILENCE.as_millis().to_string(), "ALL"]);
            }
        }
    }
    let began = Instant::now();
    place.turns(NAMES[0], false, SILENCE).await;
    tokio::time::sleep_until(began + SILENCE).await;
    if let Silence::Stop = silence {
        place.instance.resume();
    }

    let canaries = async { tokio::join!(place.canary(NAMES[0], 11), place.canary(NAMES[1], 12)) };
    let in_time = timeout(RESUME, canaries).await.is_ok();
    assert!(in_time, "nothing was handled for {RESUME:?} after the silence");
    place.turns(NAMES[0], true, RESUME).await;
    place.running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_stood_still_goes_on() {
    falls_silent(Kind::RedisCluster, Silence::Stop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_made_its_clients_wait_goes_on() {
    falls_silent(Kind::RedisCluster, Silence::ClientPause).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_and_its_sentinel_that_stood_still_go_on() {
    falls_silent(Kind::RedisSentinel, Silence::Stop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_behind_a_sentinel_that_made_its_clients_wait_goes_on() {
    falls_silent(Kind::RedisSentinel, Silence::ClientPause).await;
}

//! Whole services on one server, as processes that are killed and stopped, and as several apps at once.
//!
//! A process is this test binary, started anew to run the one ignored test below. What its handlers do they write to a list of
//! the server, with its own time; the tests read that list.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(
    clippy::unchecked_time_subtraction,
    reason = "what is compared happened in this order, or the test is to fail"
)]

mod support;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ruststream::prelude::*;
use ruststream_fred::{RedisBroker, RedisStream};
use support::{PATIENCE, Server, cli};
use tokio::time::sleep;

/// Where handlers write what they do.
const NOTES: &str = "notes";

/// Describes the service that a process is to be.
const SERVICE: &str = "RUSTSTREAM_FRED_SERVICE";

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Service {
    node: String,
    port: u16,
    lease: Duration,
    workers: usize,
    prefetch: Option<usize>,
    grace: Duration,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Job {
    id: u64,
    /// Milliseconds of work; on node `a` alone where there are two.
    work: u64,
    /// Fails in so many attempts.
    fails: u32,
}

impl Job {
    fn new(id: u64, work: u64) -> Self {
        Self { id, work, fails: 0 }
    }
}

/// One line of the notes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    what: String,
    id: u64,
    attempt: u32,
    node: String,
    at: Duration,
}

#[derive(Clone)]
struct Shared {
    node: String,
    port: u16,
}

impl Shared {
    async fn note(&self, what: &str, id: u64, attempt: u32) {
        let note = Note {
            what: what.to_owned(),
            id,
            attempt,
            node: self.node.clone(),
            at: now(),
        };
        let (port, text) = (self.port, serde_json::to_string(&note).unwrap());
        tokio::task::spawn_blocking(move || cli(port, &["RPUSH", NOTES, &text]))
            .await
            .unwrap();
    }
}

#[subscriber("jobs")]
async fn do_job(job: Job, context: Context<'_>, State(shared): State<Shared>) -> Result<(), String> {
    shared.note("begin", job.id, context.attempt()).await;
    if job.work > 0 && shared.node != "b" {
        sleep(Duration::from_millis(job.work)).await;
    }
    if context.attempt() <= job.fails {
        return Err("it is to fail".to_owned());
    }
    shared.note("end", job.id, context.attempt()).await;
    Ok(())
}

/// What a started process does.
#[test]
#[ignore = "the other tests start it as a process of its own"]
fn service() {
    let Ok(service) = std::env::var(SERVICE) else { return };
    let service: Service = serde_json::from_str(&service).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let code = runtime.block_on(app(&service).run());
    std::process::exit(i32::from(code.is_err()));
}

fn app(service: &Service) -> RustStream {
    let shared = Shared {
        node: service.node.clone(),
        port: service.port,
    };
    let ready = shared.clone();
    RustStream::new(AppInfo::new("service", "1"))
        .state(shared)
        .with_broker(
            RedisBroker::standalone(format!("redis://127.0.0.1:{}", service.port)),
            |broker| {
                let source = RedisStream::new("jobs").lease(service.lease);
                let subscription = broker.include(do_job).source(source);
                subscription
                    .workers(service.workers)
                    .retry(Retry::fixed(Duration::from_millis(100)).attempts(4));
                if let Some(prefetch) = service.prefetch {
                    subscription.prefetch(prefetch);
                }
            },
        )
        .shutdown_grace(service.grace)
        .after_startup(move |_| async move {
            ready.note("ready", 0, 0).await;
            Ok(())
        })
        .build()
}

struct Place {
    server: Server,
}

/// Killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    fn new() -> Self {
        Self {
            server: Server::start(),
        }
    }

    fn service(&self, node: &str) -> Service {
        Service {
            node: node.to_owned(),
            port: self.server.instance.port(),
            lease: Duration::from_secs(30),
            workers: 1,
            prefetch: None,
            grace: Duration::from_secs(10),
        }
    }

    async fn start(&self, service: &Service) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "service", "--ignored", "--nocapture", "--test-threads=1"])
            .env(SERVICE, serde_json::to_string(service).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let node = service.node.clone();
        self.until("the start of a service", |notes| {
            notes.iter().any(|note| note.what == "ready" && note.node == node)
        })
        .await;
        Process(child)
    }

    fn notes(&self) -> Vec<Note> {
        let lines = self.server.cli(&["--raw", "LRANGE", NOTES, "0", "-1"]);
        lines
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    async fn until(&self, what: &str, there: impl Fn(&[Note]) -> bool) -> Vec<Note> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let notes = self.notes();
            if there(&notes) {
                return notes;
            }
            assert!(
                tokio::time::Instant::now() < end,
                "{what} never came; of {} notes the last: {:#?}",
                notes.len(),
                notes.iter().rev().take(8).collect::<Vec<_>>()
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn counted(&self, what: &str, count: usize) -> Vec<Note> {
        self.until(&format!("{count} of {what}"), |notes| {
            notes.iter().filter(|note| note.what == what).count() >= count
        })
        .await
    }

    async fn publish(&self, jobs: &[Job]) {
        let connection = self.server.connect().await;
        let payloads: Vec<Vec<u8>> = jobs.iter().map(|job| serde_json::to_vec(job).unwrap()).collect();
        for part in payloads.chunks(500) {
            support::publish(&connection, "jobs", part).await;
        }
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn runs(notes: &[Note], id: u64) -> Vec<&Note> {
    notes
        .iter()
        .filter(|note| note.what == "begin" && note.id == id)
        .collect()
}

/// C13, C38: what a killed process had in hand comes again when its lease has passed, neither earlier nor much later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_had_in_hand_is_reclaimed_when_its_lease_ends() {
    const LEASE: Duration = Duration::from_secs(2);
    let place = Place::new();
    let service = Service {
        lease: LEASE,
        workers: 20,
        ..place.service("a")
    };
    let mut first = place.start(&service).await;
    let jobs: Vec<Job> = (1..=20).map(|id| Job::new(id, 600_000)).collect();
    place.publish(&jobs).await;
    place.counted("begin", 20).await;
    let second = Service {
        node: "b".to_owned(),
        ..service
    };
    let _second = place.start(&second).await;
    // Past the first lease: what is in hand is renewed, and the other process gets none of it.
    sleep(LEASE + Duration::from_millis(300)).await;
    assert_eq!(place.notes().iter().filter(|note| note.what == "begin").count(), 20);

    first.0.kill().unwrap();
    let killed = now();
    let notes = place.counted("end", 20).await;

    for id in 1..=20 {
        let runs = runs(&notes, id);
        let attempts: Vec<u32> = runs.iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, [1, 2], "message {id}");
        let waited = runs[1].at.saturating_sub(killed);
        // Renewed at a third of the lease, at the latest.
        assert!(waited >= LEASE * 6 / 10, "message {id} came after {waited:?}");
        assert!(
            waited <= LEASE + Duration::from_secs(1),
            "message {id} came after {waited:?}"
        );
    }
}

/// C20: at SIGTERM what can be finished is, and the rest goes at once to whoever is there, its attempt given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_sigterm_work_in_hand_is_finished_and_the_rest_given_back() {
    const GRACE: Duration = Duration::from_millis(2500);
    let place = Place::new();
    let service = Service {
        workers: 20,
        prefetch: Some(100),
        grace: GRACE,
        ..place.service("a")
    };
    let mut first = place.start(&service).await;
    let mut jobs: Vec<Job> = (1..=10).map(|id| Job::new(id, 1500)).collect();
    jobs.extend((11..=20).map(|id| Job::new(id, 600_000)));
    jobs.extend((21..=520).map(|id| Job::new(id, 0)));
    place.publish(&jobs).await;
    place.counted("begin", 20).await;

    let stopped = now();
    let pid = first.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let second = Service {
        node: "b".to_owned(),
        prefetch: None,
        ..service
    };
    let _second = place.start(&second).await;
    let exit = tokio::task::spawn_blocking(move || first.0.wait().unwrap())
        .await
        .unwrap();
    let took = now() - stopped;
    let notes = place.counted("end", 520).await;

    assert_eq!(exit.code(), Some(0));
    assert!(took < GRACE + Duration::from_secs(1), "{took:?}");
    for id in 1..=520 {
        let runs = runs(&notes, id);
        let seen: Vec<(&str, u32)> = runs.iter().map(|run| (run.node.as_str(), run.attempt)).collect();
        match id {
            1..=10 => assert_eq!(seen, [("a", 1)], "message {id} was in hand"),
            11..=20 => {
                assert_eq!(
                    seen,
                    [("a", 1), ("b", 1)],
                    "message {id} was given back with its attempt"
                );
                let after = runs[1].at - stopped;
                assert!(
                    after <= GRACE + Duration::from_secs(2),
                    "message {id} came after {after:?}"
                );
            }
            _ => assert_eq!(seen, [("b", 1)], "message {id} was begun by no one"),
        }
    }
    assert_eq!(place.server.pending("jobs", "ruststream"), (0, 0));
}

/// C03: a handler that works for longer than the lease is not run twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_handler_is_run_once() {
    let place = Place::new();
    let service = Service {
        lease: Duration::from_millis(600),
        workers: 10,
        ..place.service("one")
    };
    let other = Service {
        node: "two".to_owned(),
        ..service.clone()
    };
    let (one, two) = (app(&service).start().await.unwrap(), app(&other).start().await.unwrap());
    let jobs: Vec<Job> = (1..=20).map(|id| Job::new(id, 2500)).collect();
    place.publish(&jobs).await;

    let notes = place.counted("end", 20).await;

    for id in 1..=20 {
        assert_eq!(runs(&notes, id).len(), 1, "message {id}");
    }
    assert_eq!(place.server.pending("jobs", "ruststream"), (0, 0));
    one.shutdown().await.unwrap();
    two.shutdown().await.unwrap();
}

/// C46: with one worker messages come in order, one that failed after its delay and before no one it has to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_with_a_prefetch_keeps_the_order() {
    const ALL: u64 = 100;
    let place = Place::new();
    let service = Service {
        prefetch: Some(50),
        ..place.service("one")
    };
    let jobs: Vec<Job> = (1..=ALL)
        .map(|id| Job {
            fails: u32::from(id == 3),
            ..Job::new(id, 0)
        })
        .collect();
    place.publish(&jobs).await;
    let running = app(&service).start().await.unwrap();
    let notes = place.counted("end", ALL as usize).await;
    running.shutdown().await.unwrap();

    let begun: Vec<u64> = notes
        .iter()
        .filter(|note| note.what == "begin")
        .map(|note| note.id)
        .collect();
    let mut firsts = begun.clone();
    let again = begun.iter().rposition(|id| *id == 3).unwrap();
    firsts.remove(again);
    assert_eq!(firsts, (1..=ALL).collect::<Vec<_>>());
    let retried = runs(&notes, 3);
    assert!(retried[1].at - retried[0].at >= Duration::from_millis(100));
}

/// C14: what cannot be decoded becomes a dead letter at once, byte for byte, and holds no one up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_messages_are_set_aside_as_they_came() {
    use ruststream::message::{HeaderMap, Outgoing};
    use ruststream::transport::{Connection as _, Delivery as _, Publish as _};

    let place = Place::new();
    let connection = place.server.connect().await;
    let mut raw = HeaderMap::new();
    raw.insert("raw", vec![0xff]);
    raw.insert("content-type", "text/nonsense");
    let bad: [(&[u8], Option<&HeaderMap>); 4] = [
        (b"{\"id\":", None),
        (b"[1]", None),
        (b"", None),
        (b"\xff\xfe{}", Some(&raw)),
    ];
    for (payload, headers) in bad {
        let mut message = Outgoing::new("jobs", payload);
        if let Some(headers) = headers {
            message = message.with_headers(headers);
        }
        connection.publisher().publish(&[message]).await.unwrap();
    }
    let running = app(&place.service("one")).start().await.unwrap();
    let jobs: Vec<Job> = (1..=100).map(|id| Job::new(id, 0)).collect();
    place.publish(&jobs).await;
    place.counted("end", 100).await;

    let mut dead = support::Reader::open(RedisStream::new("jobs.dead"), &connection).await;
    let letters = dead.take(4).await;
    let mut by_payload: BTreeMap<&[u8], &ruststream_fred::StreamDelivery> = BTreeMap::new();
    for letter in &letters {
        assert_eq!(letter.headers().get_str("dead-letter-reason"), Some("undecodable"));
        assert_eq!(letter.headers().get_str("dead-letter-attempts"), Some("1"));
        by_payload.insert(letter.payload(), letter);
    }
    for (payload, _) in bad {
        assert!(by_payload.contains_key(payload), "{payload:?} is lost");
    }
    assert_eq!(by_payload[&b"\xff\xfe{}"[..]].headers().get("raw"), Some(&[0xff][..]));
    dead.ack(letters).await;
    assert_eq!(place.server.pending("jobs", "ruststream"), (0, 0));
    running.shutdown().await.unwrap();
}

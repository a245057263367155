//! Whole services as processes that are killed and told to end, on classic and quorum queues.
//!
//! A process is this test binary, started anew to run the one ignored test below. What its handlers do they add to a file, which the
//! tests read.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(
    clippy::unchecked_time_subtraction,
    reason = "what is compared happened in this order, or the test is to fail"
)]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ruststream::conformance::unique_name;
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection, Publish};
use ruststream_lapin::{LapinBroker, LapinConnection, Queue, QueueType};
use servers::Kind;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(30);
/// Describes the service that a process is to be.
const SERVICE: &str = "RUSTSTREAM_LAPIN_SERVICE";
const GRACE: Duration = Duration::from_millis(2500);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Service {
    node: String,
    url: String,
    queue: String,
    quorum: bool,
    workers: usize,
    prefetch: Option<usize>,
    notes: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Job {
    id: u64,
    /// Milliseconds of work, on node `a` alone.
    work: u64,
    /// Ends the process at once, as `kill -9` does.
    kills: bool,
}

impl Job {
    fn new(id: u64, work: u64) -> Self {
        Self { id, work, kills: false }
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
struct Notes {
    node: String,
    file: PathBuf,
}

impl Notes {
    fn note(&self, what: &str, id: u64, attempt: u32) {
        let note = Note {
            what: what.to_owned(),
            id,
            attempt,
            node: self.node.clone(),
            at: now(),
        };
        let line = format!("{}\n", serde_json::to_string(&note).unwrap());
        let mut file = OpenOptions::new().create(true).append(true).open(&self.file).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

#[subscriber("jobs")]
async fn do_job(job: Job, context: Context<'_>, State(notes): State<Notes>) {
    notes.note("begin", job.id, context.attempt());
    if job.kills {
        let pid = std::process::id().to_string();
        Command::new("kill").args(["-KILL", &pid]).status().unwrap();
    }
    if job.work > 0 && notes.node == "a" {
        sleep(Duration::from_millis(job.work)).await;
    }
    notes.note("end", job.id, context.attempt());
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
    let notes = Notes {
        node: service.node.clone(),
        file: service.notes.clone(),
    };
    let ready = notes.clone();
    let source = queue(&service.queue, service.quorum);
    RustStream::new(AppInfo::new("service", "1"))
        .state(notes)
        .with_broker(LapinBroker::new(&service.url), |broker| {
            let subscription = broker.include(do_job).source(source);
            subscription
                .workers(service.workers)
                .retry(Retry::fixed(Duration::from_millis(100)).attempts(3));
            if let Some(prefetch) = service.prefetch {
                subscription.prefetch(prefetch);
            }
        })
        .shutdown_grace(GRACE)
        .after_startup(move |_| async move {
            ready.note("ready", 0, 0);
            Ok(())
        })
        .build()
}

fn queue(name: &str, quorum: bool) -> Queue {
    let queue_type = if quorum { QueueType::Quorum } else { QueueType::Classic };
    Queue::new(name).queue_type(queue_type)
}

struct Place {
    service: Service,
    connection: LapinConnection,
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
    async fn new(quorum: bool) -> Self {
        let name = unique_name();
        let url = servers::shared(Kind::Rabbit).unwrap();
        let connection = LapinBroker::new(&url)
            .declare(queue(&name, quorum))
            .connect()
            .await
            .unwrap();
        let notes = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&name);
        fs::write(&notes, "").unwrap();
        let service = Service {
            node: "a".to_owned(),
            url,
            queue: name,
            quorum,
            workers: 1,
            prefetch: None,
            notes,
        };
        Self { service, connection }
    }

    async fn start(&self, node: &str) -> Process {
        let service = Service {
            node: node.to_owned(),
            ..self.service.clone()
        };
        let before = self.notes().len();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "service", "--ignored", "--nocapture", "--test-threads=1"])
            .env(SERVICE, serde_json::to_string(&service).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process(child);
        self.until("the start of a service", |notes| {
            notes[before..]
                .iter()
                .any(|note| note.what != "end" && note.node == node)
        })
        .await;
        process
    }

    fn notes(&self) -> Vec<Note> {
        let text = fs::read_to_string(&self.service.notes).unwrap();
        // The last line may be being written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    async fn until(&self, what: &str, there: impl Fn(&[Note]) -> bool) -> Vec<Note> {
        let end = Instant::now() + PATIENCE;
        loop {
            let notes = self.notes();
            if there(&notes) {
                return notes;
            }
            assert!(
                Instant::now() < end,
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
        let payloads: Vec<Vec<u8>> = jobs.iter().map(|job| serde_json::to_vec(job).unwrap()).collect();
        let messages: Vec<_> = payloads
            .iter()
            .map(|payload| Outgoing::new(&self.service.queue, payload))
            .collect();
        self.connection.publisher().publish(&messages).await.unwrap();
    }

    async fn dead_letters(&self, count: usize) -> Vec<ruststream_lapin::DeadMessage> {
        let dead = format!("{}.dead", self.service.queue);
        let end = Instant::now() + PATIENCE;
        loop {
            match self.connection.dead_letters(&dead).list(count + 1).await {
                Ok(letters) if letters.len() >= count => {
                    assert_eq!(letters.len(), count);
                    return letters;
                }
                listed => assert!(Instant::now() < end, "not {count} dead letters: {listed:?}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn close(self) {
        self.connection.close().await;
        fs::remove_file(&self.service.notes).unwrap();
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn runs(notes: &[Note], id: u64) -> Vec<&Note> {
    let runs = notes.iter().filter(|note| note.what == "begin" && note.id == id);
    runs.collect()
}

async fn drain(quorum: bool) {
    let mut place = Place::new(quorum).await;
    (place.service.workers, place.service.prefetch) = (20, Some(100));
    let mut first = place.start("a").await;
    let mut jobs: Vec<Job> = (1..=10).map(|id| Job::new(id, 1500)).collect();
    jobs.extend((11..=20).map(|id| Job::new(id, 600_000)));
    jobs.extend((21..=520).map(|id| Job::new(id, 0)));
    place.publish(&jobs).await;
    place.counted("begin", 20).await;

    let stopped = now();
    let pid = first.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let second = place.start("b").await;
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
    drop(second);
    place.close().await;
}

/// C20: at SIGTERM what can be finished is, and the rest goes at once to whoever is there, its attempt given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_sigterm_work_in_hand_is_finished_and_the_rest_given_back() {
    drain(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_sigterm_work_of_a_quorum_queue_is_finished_and_the_rest_given_back() {
    drain(true).await;
}

async fn killed_by_a_message(quorum: bool) {
    let place = Place::new(quorum).await;
    let poison = Job {
        kills: true,
        ..Job::new(1, 0)
    };
    place.publish(&[poison]).await;
    for attempt in 1..=3 {
        let mut process = place.start("a").await;
        let ended = tokio::task::spawn_blocking(move || process.0.wait().unwrap());
        let status = tokio::time::timeout(PATIENCE, ended)
            .await
            .expect("it lives on")
            .unwrap();
        assert!(!status.success(), "attempt {attempt}");
    }
    // The fourth time it is not handed out, and what is behind it is.
    let process = place.start("a").await;
    place.publish(&[Job::new(2, 0)]).await;
    place.counted("end", 1).await;
    let letters = place.dead_letters(1).await;
    assert_eq!(
        letters[0].headers.get_str("dead-letter-reason"),
        Some("attempts-exhausted")
    );
    let notes = place.notes();
    let attempts: Vec<_> = runs(&notes, 1).iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(runs(&notes, 2).len(), 1);
    drop(process);
    place.close().await;
}

/// C17: a message that kills its process with signal 9 is handed out as often as its policy grants, and then set aside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_classic_queue_that_kills_its_process_is_given_up() {
    killed_by_a_message(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_quorum_queue_that_kills_its_process_is_given_up() {
    killed_by_a_message(true).await;
}

async fn undecodable(quorum: bool) {
    let place = Place::new(quorum).await;
    let mut raw = HeaderMap::new();
    raw.insert("raw", vec![0xff]);
    let mut unknown = HeaderMap::new();
    unknown.insert("content-type", "text/nonsense");
    let bad: [(&[u8], Option<&HeaderMap>); 5] = [
        (b"{\"id\":", None),
        (b"[1]", None),
        (b"", None),
        (b"\xff\xfe{}", Some(&raw)),
        (b"id=7", Some(&unknown)),
    ];
    for (payload, headers) in bad {
        let mut message = Outgoing::new(&place.service.queue, payload);
        if let Some(headers) = headers {
            message = message.with_headers(headers);
        }
        place.connection.publisher().publish(&[message]).await.unwrap();
    }
    let jobs: Vec<Job> = (1..=100).map(|id| Job::new(id, 0)).collect();
    place.publish(&jobs).await;
    let running = app(&place.service).start().await.unwrap();
    let notes = place.counted("end", 100).await;
    assert!((1..=100).all(|id| runs(&notes, id).len() == 1));

    let letters = place.dead_letters(5).await;
    let mut by_payload = BTreeMap::new();
    for letter in &letters {
        assert_eq!(letter.headers.get_str("dead-letter-reason"), Some("undecodable"));
        assert_eq!(letter.headers.get_str("dead-letter-attempts"), Some("1"));
        by_payload.insert(letter.payload.as_slice(), letter);
    }
    for (payload, _) in bad {
        assert!(by_payload.contains_key(payload), "{payload:?} is lost");
    }
    assert_eq!(by_payload[&b"\xff\xfe{}"[..]].headers.get("raw"), Some(&[0xff][..]));
    running.shutdown().await.unwrap();
    place.close().await;
}

/// C14: what cannot be decoded becomes a dead letter at once, byte for byte, and holds no one up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_messages_are_set_aside_as_they_came() {
    undecodable(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_messages_of_a_quorum_queue_are_set_aside_as_they_came() {
    undecodable(true).await;
}

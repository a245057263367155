//! Several processes on one file, and processes that are killed.
//!
//! A process is this test binary, started anew to run the one ignored test below.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use crate::place::Place;
use crate::support;
use crate::support::{open, payloads, publish_numbers, subscribe};
use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Connection, Delivery, Publish};
use ruststream_sqlx::Inbox;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::Instant;

/// Says what a child is to do: `publish`, `take` (and hold), `consume`.
const ROLE: &str = "RUSTSTREAM_SQLX_TEST_ROLE";
const PATH: &str = "RUSTSTREAM_SQLX_TEST_PATH";

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(place: &Place, role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "processes::child",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, role)
            .env(PATH, place.describe())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// What the child says next, without what the test harness says.
    async fn says(&mut self) -> Option<String> {
        loop {
            let line = tokio::time::timeout(support::PATIENCE, self.lines.next_line())
                .await
                .expect("the child said nothing")
                .unwrap()?;
            if let Some((_, said)) = line.split_once("> ") {
                return Some(said.to_owned());
            }
        }
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// What a started process does.
#[tokio::test]
#[ignore = "the other tests start it as a process of its own"]
async fn child() {
    let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(PATH)) else {
        return;
    };
    let connection = Place::described(&path).connect().await.unwrap();
    let inbox = Inbox::queue("orders").lease(Duration::from_secs(1));
    let mut orders = open(&connection, &inbox).await;
    match role.as_str() {
        "publish" => {
            for number in 0.. {
                let payload = format!("{}-{number}", std::process::id());
                connection
                    .publisher()
                    .publish(&[Outgoing::new("orders", payload.as_bytes())])
                    .await
                    .unwrap();
                println!("> {payload}");
            }
        }
        "take" => {
            let held = orders.take(20).await;
            println!("> {}", held.len());
            std::future::pending::<()>().await;
        }
        "consume" => {
            println!("> ready");
            loop {
                let got = orders.next(8).await;
                for payload in payloads(&got) {
                    println!("> {payload}");
                }
                assert_eq!(orders.ack(got).await.stale, 0);
            }
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_confirmed_publish_survives_a_kill() {
    let place = Place::new().await;
    let mut confirmed = Vec::new();
    for _ in 0..3 {
        let mut process = Process::start(&place, "publish");
        for _ in 0..50 {
            confirmed.push(process.says().await.unwrap());
        }
        process.kill().await;
    }
    let connection = place.connect().await;
    let mut orders = subscribe(&connection, "orders").await;
    let counts = connection.queue_counts("orders").await.unwrap();
    let stored = payloads(&orders.take(counts.ready as usize).await);
    for payload in confirmed {
        assert!(stored.contains(&payload), "{payload} was confirmed and is lost");
    }
}

#[tokio::test]
async fn what_a_killed_process_held_comes_again_when_its_leases_end_and_not_before() {
    let place = Place::new().await;
    let connection = place.connect().await;
    publish_numbers(&connection, "orders", 20).await;
    let mut process = Process::start(&place, "take");
    assert_eq!(process.says().await.unwrap(), "20");
    let taken = Instant::now();
    process.kill().await;

    let mut orders = subscribe(&connection, "orders").await;
    let again = orders.take(20).await;

    let waited = taken.elapsed();
    assert!(waited >= Duration::from_millis(850), "{waited:?}");
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    assert!(again.iter().all(|delivery| delivery.attempt() == 2));
    assert_eq!(orders.ack(again).await.stale, 0);
}

#[tokio::test]
async fn processes_that_work_on_one_file_lose_and_double_nothing() {
    const COUNT: usize = 2_000;
    let place = Place::new().await;
    let connection = place.connect().await;
    let mut processes: Vec<_> = (0..2).map(|_| Process::start(&place, "consume")).collect();
    for process in &mut processes {
        assert_eq!(process.says().await.unwrap(), "ready");
    }
    let (sender, mut said) = tokio::sync::mpsc::channel(64);
    let mut readers = tokio::task::JoinSet::new();
    for (number, mut process) in processes.into_iter().enumerate() {
        let sender = sender.clone();
        readers.spawn(async move {
            while let Some(payload) = process.says().await {
                if sender.send((number, payload)).await.is_err() {
                    break;
                }
            }
        });
    }
    let publisher = connection.publisher();
    tokio::spawn(async move {
        for number in 0..COUNT {
            publisher
                .publish(&[Outgoing::new("orders", number.to_string().as_bytes())])
                .await
                .unwrap();
        }
    });
    let mut seen = BTreeMap::new();
    for _ in 0..COUNT {
        let said = tokio::time::timeout(support::PATIENCE, said.recv()).await;
        let (process, payload) = said.expect("a message never came").unwrap();
        assert_eq!(seen.insert(payload.clone(), process), None, "{payload} came twice");
    }
    for process in 0..2 {
        assert!(seen.values().any(|by| *by == process), "process {process} got nothing");
    }
    // Ends the processes before their file goes.
    readers.shutdown().await;
}

#[tokio::test]
async fn a_message_of_another_process_comes_soon() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let mut process = Process::start(&place, "consume");
    assert_eq!(process.says().await.unwrap(), "ready");
    for number in 0..5 {
        tokio::time::sleep(Duration::from_millis(130)).await;
        let start = Instant::now();
        let payload = number.to_string();
        connection
            .publisher()
            .publish(&[Outgoing::new("orders", payload.as_bytes())])
            .await
            .unwrap();
        assert_eq!(process.says().await.unwrap(), payload);
        assert!(start.elapsed() < Place::WOKEN_WITHIN, "{:?}", start.elapsed());
    }
    process.kill().await;
}

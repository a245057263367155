//! What SIGTERM and SIGINT do to a program that runs an app.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use common::{app, handler, publish_ids};
use ruststream::prelude::*;
use tokio::time::Instant;

/// Names what the program under test is to do; without it the test of that name does nothing.
const PART: &str = "RUSTSTREAM_TEST_PART";

/// The program under test: this one, started again with a part.
#[tokio::test]
async fn program() {
    let Ok(part) = std::env::var(PART) else { return };
    let broker = MemoryBroker::new();
    publish_ids(&broker, "orders", 1..=1_000).await;
    broker.set_down(part == "absent");
    let stuck = part == "stuck";
    let blocks = part.starts_with("blocks");
    println!();
    app(broker.clone(), |scope| {
        scope
            .include(handler("orders", move |given| async move {
                if given.id() == 1 {
                    println!("handling");
                }
                if blocks {
                    loop {
                        std::thread::park();
                    }
                }
                tokio::time::sleep(if stuck {
                    Duration::MAX
                } else {
                    Duration::from_millis(300)
                })
                .await;
            }))
            .workers(10);
    })
    .on_startup(|| async {
        println!("begins");
        Ok(())
    })
    .on_shutdown(|_| async {
        println!("stopping");
        Ok(())
    })
    .shutdown_grace(if part == "blocks-briefly" {
        Duration::from_millis(200)
    } else {
        Duration::from_mins(5)
    })
    .run()
    .await
    .unwrap();
    println!("acked {} held {}", broker.counts("orders").acked, broker.held("orders"));
}

/// The program at work.
struct Program {
    child: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(part: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "program", "--nocapture"])
            .env(PART, part)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, says }
    }

    /// Waits for a line that begins so.
    fn says(&mut self, begin: &str) -> String {
        let line = self
            .says
            .by_ref()
            .map_while(Result::ok)
            .find(|line| line.starts_with(begin));
        line.unwrap_or_else(|| panic!("it never said `{begin}`"))
    }

    fn signal(&self, name: &str) {
        self.signals(&[name]);
    }

    /// Sends signals as fast as a program does.
    fn signals(&self, names: &[&str]) {
        let id = self.child.id();
        let script = names.iter().map(|name| format!("kill {name} {id}"));
        let script = script.collect::<Vec<_>>().join("; ");
        assert!(Command::new("sh").args(["-ec", &script]).status().unwrap().success());
    }

    fn ends(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_signal_drains_the_app_and_the_program_ends_well() {
    for signal in ["-TERM", "-INT"] {
        let mut program = Program::start("drains");
        program.says("handling");

        program.signal(signal);

        program.says("stopping");
        let end = program.says("acked");
        let counts: Vec<u64> = end.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert_eq!(counts[0] + counts[1], 1_000, "{end}");
        assert!((10..1_000).contains(&counts[0]), "{end}");
        assert!(program.ends().success());
    }
}

/// The shortest pause between two signals of a person; what comes sooner is taken for an echo.
const PERSON: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_second_signal_ends_the_program_at_once() {
    // Also where no thread is left to hear it.
    for part in ["stuck", "blocks"] {
        let mut program = Program::start(part);
        program.says("handling");

        program.signal("-TERM");
        tokio::time::sleep(PERSON).await;
        let begun = Instant::now();
        program.signal("-TERM");
        let status = program.ends();

        assert_eq!(status.code(), Some(130), "{part}");
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{part}: {:?}",
            begun.elapsed()
        );
    }
}

#[test]
fn the_echo_of_a_signal_is_no_second_one() {
    let mut program = Program::start("drains");
    program.says("handling");

    // Of one kind two could become one on their way.
    program.signals(&["-TERM", "-INT", "-TERM"]);

    program.says("acked");
    assert!(program.ends().success());
}

#[test]
fn a_program_whose_threads_are_all_blocked_ends_after_the_grace_period() {
    let mut program = Program::start("blocks-briefly");
    program.says("handling");

    let begun = Instant::now();
    program.signal("-TERM");
    let status = program.ends();

    assert_eq!(status.code(), Some(1));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn a_signal_ends_a_program_that_waits_for_its_broker() {
    let mut program = Program::start("absent");
    program.says("begins");

    program.signal("-TERM");

    assert!(program.ends().success());
}

//! A service at work as a process of its own.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command as Program, ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};

use super::Service;
use super::service::SERVICE;
use crate::support::PATIENCE;

/// The word of many bounds.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A process. It is killed when this is dropped.
pub(crate) struct Node {
    child: Child,
    log: PathBuf,
    pub(crate) process: u32,
}

impl Node {
    pub(super) fn start(service: &Service, environment: &[(&str, &str)], log: PathBuf) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "service", "--ignored", "--nocapture", "--test-threads=1"])
            .env(SERVICE, serde_json::to_string(service).unwrap())
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let process = child.id().unwrap();
        Self { child, log, process }
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.process, name);
    }

    /// Waits for its end.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        let exit = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        exit.expect("the process did not end").unwrap()
    }

    /// Kills it, as the kernel does.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Stops it as an operator does, and expects it to end well.
    pub(crate) async fn stop(mut self) {
        self.signal("TERM");
        assert!(self.exit().await.success(), "{}", self.log());
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The time that it has spent on a CPU.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap();
        // The name of the program stands in brackets and may contain anything; the 14th and 15th words are ticks of 10 ms.
        let (_, words) = stat.rsplit_once(')').unwrap();
        let ticks: u64 = words
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|word| word.parse::<u64>().unwrap())
            .sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Node {
    #[allow(clippy::print_stderr, reason = "a test that failed shows what its processes said")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let log: Vec<&str> = log.lines().collect();
            eprintln!("the end of {}:", self.log.display());
            for line in &log[log.len().saturating_sub(30)..] {
                eprintln!("  {line}");
            }
        }
    }
}

/// Sends a signal to a process of ours by its id.
pub(super) fn signal(process: u32, name: &str) {
    let sent = Program::new("sh")
        .args(["-c", &format!("kill -{name} {process}")])
        .status();
    assert!(sent.unwrap().success(), "no signal {name} to {process}");
}

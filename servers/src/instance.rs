//! A server of one's own, which may be made to fail.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{self, User};
use crate::{Error, Kind, install, rabbit};

/// How long a server may take to answer after its start.
const START: Duration = Duration::from_mins(3);
/// How long it may take to end by itself when it is told to.
const STOP: Duration = Duration::from_secs(30);

/// How an [`Instance`] is set up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// Whether what it has confirmed is there again after it was killed. Off by default, as in the published benchmarks.
    pub durable: bool,
}

/// A private server on a free port of the loopback; it is killed and its data removed when the value is dropped.
pub struct Instance {
    kind: Kind,
    settings: Settings,
    port: u16,
    running: Option<Child>,
    place: TempDir,
}

impl Instance {
    /// Installs what is missing, starts a server and waits until it answers.
    ///
    /// # Errors
    ///
    /// Where it cannot be installed or does not answer within three minutes; with the end of its log.
    pub fn start(kind: Kind, settings: Settings) -> Result<Self, Error> {
        install::ensure(kind)?;
        let place = tempfile::Builder::new()
            .prefix(&format!("ruststream-{}-", kind.name()))
            .tempdir()
            .map_err(Error::during("a directory for its data"))?;
        let mut instance = Self {
            kind,
            settings,
            port: process::free_port()?,
            running: None,
            place,
        };
        prepare(kind, instance.place.path(), instance.port, settings)?;
        instance.start_again()?;
        kind.recipe().set_up(instance.place.path(), instance.port)?;
        Ok(instance)
    }

    /// The URL for clients; it stays the same when the server is started again.
    pub fn url(&self) -> String {
        self.kind.recipe().url(self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory with its data and its log.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// Ends all its processes at once, as a machine that loses power would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            end(&mut child, Signal::KILL, Duration::from_secs(10));
        }
    }

    /// Tells it to end and waits until it has.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            process::signal(child.id(), self.kind.recipe().stops_by());
            let ended = process::wait_until(STOP, || matches!(child.try_wait(), Ok(Some(_))));
            if !ended {
                end(&mut child, Signal::KILL, Duration::from_secs(10));
            }
        }
    }

    /// Starts it again on its port, with the data that it left; waits until it answers. Does nothing while it runs.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_again(&mut self) -> Result<(), Error> {
        if self.running.is_none() {
            self.running = Some(launch(self.kind, self.place.path(), self.port, self.settings)?);
        }
        Ok(())
    }

    /// Runs `rabbitmqctl` against it and answers what it prints; only for [`Kind::Rabbit`].
    ///
    /// # Errors
    ///
    /// Where the command fails, with what it said.
    pub fn rabbitmqctl(&self, arguments: &[&str]) -> Result<String, Error> {
        rabbit::control(self.place(), arguments)
    }

    /// Adds lines to its `rabbitmq.conf` and starts it again; only for [`Kind::Rabbit`].
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn configure_rabbit(&mut self, lines: &str) -> Result<(), Error> {
        self.stop();
        rabbit::configure(self.place(), lines)?;
        self.start_again()
    }

    /// Stops all its processes where they are (SIGSTOP): links stay open and nothing answers.
    pub fn pause(&self) {
        if let Some(child) = &self.running {
            process::stop_tree(child.id());
        }
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&self) {
        if let Some(child) = &self.running {
            process::signal_tree(child.id(), Signal::CONT);
        }
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("kind", &self.kind)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill();
        self.kind.recipe().clean_up(self.place.path(), self.port);
    }
}

fn end(child: &mut Child, with: Signal, most: Duration) {
    // Those whose parent has died are no longer found from it, so they are looked up first.
    let all = process::tree(child.id());
    for pid in &all {
        process::signal(*pid, with);
    }
    let _ = child.wait();
    process::wait_until(most, || !all.iter().any(|pid| process::runs(*pid)));
}

/// Makes `place` ready for a first start.
pub(crate) fn prepare(kind: Kind, place: &Path, port: u16, settings: Settings) -> Result<(), Error> {
    let recipe = kind.recipe();
    let user = User::to_become(recipe.user())?;
    if let Some(user) = user {
        user.give(place)?;
    }
    recipe.prepare(place, port, settings)?;
    match user {
        Some(user) => user.give(place),
        None => Ok(()),
    }
}

/// Starts a server in `place` and waits until it answers.
pub(crate) fn launch(kind: Kind, place: &Path, port: u16, settings: Settings) -> Result<Child, Error> {
    let recipe = kind.recipe();
    let mut command = recipe.command(place, port, settings);
    if let Some(user) = User::to_become(recipe.user())? {
        user.run(&mut command);
    }
    let mut child = process::spawn(command, &log_of(place))?;
    let mut ended = None;
    let answers = process::wait_until(START, || {
        ended = child.try_wait().ok().flatten();
        ended.is_some() || recipe.answers(place, port)
    });
    if answers && ended.is_none() {
        return Ok(child);
    }
    end(&mut child, Signal::KILL, Duration::from_secs(10));
    let what = ended.map_or_else(
        || format!("did not answer on port {port} within {} s", START.as_secs()),
        |status| format!("ended with {status} instead of answering"),
    );
    let log = fs::read_to_string(log_of(place)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(20)..].join("\n");
    Err(Error::new(format!(
        "{} {what}; the end of its log:\n{last}",
        kind.name()
    )))
}

fn log_of(place: &Path) -> PathBuf {
    place.join("server.log")
}

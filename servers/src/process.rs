//! Processes of the system: users, trees, signals, locks between processes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::Error;

/// A port that nobody listens on.
pub(crate) fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Error::during("a free port"))?;
    let address = listener.local_addr().map_err(Error::during("a free port"))?;
    Ok(address.port())
}

/// Waits until `holds`, asking every 20 ms; false when the time is over.
#[allow(
    clippy::disallowed_methods,
    reason = "no runtime here, and a process gives no signal when its port opens"
)]
pub(crate) fn wait_until(most: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let started = now();
    loop {
        if holds() {
            return true;
        }
        if started.elapsed() > most {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[allow(clippy::disallowed_methods, reason = "servers live by the clock on the wall")]
fn now() -> Instant {
    Instant::now()
}

/// A user of the system, where this process may become one.
#[derive(Clone, Copy)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user of that name if this process is root's, else nobody: it runs as whoever it is.
    pub(crate) fn to_become(name: Option<&str>) -> Result<Option<Self>, Error> {
        let Some(name) = name.filter(|_| rustix::process::geteuid().is_root()) else {
            return Ok(None);
        };
        let users = fs::read_to_string("/etc/passwd").map_err(Error::during("/etc/passwd"))?;
        let number = |field: Option<&&str>| field.and_then(|field| field.parse().ok());
        users
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.first() == Some(&name))
            .and_then(|fields| {
                Some(Self {
                    uid: number(fields.get(2))?,
                    gid: number(fields.get(3))?,
                })
            })
            .map(Some)
            .ok_or_else(|| Error::new(format!("there is no user {name}, as whom the server has to run")))
    }

    /// Gives it a file or directory and all that is in it.
    pub(crate) fn give(self, path: &Path) -> Result<(), Error> {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid)).map_err(Error::during(path.display()))?;
        if path.is_dir() {
            for entry in fs::read_dir(path).map_err(Error::during(path.display()))? {
                self.give(&entry.map_err(Error::during(path.display()))?.path())?;
            }
        }
        Ok(())
    }

    pub(crate) fn run(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }
}

/// Starts `command` so that it outlives neither a signal to our group nor holds our output; what it says goes to `log`.
pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<std::process::Child, Error> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(log)
        .map_err(Error::during(log.display()))?;
    let copy = file.try_clone().map_err(Error::during(log.display()))?;
    command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(copy)
        .process_group(0)
        .spawn()
        .map_err(Error::during(command.get_program().display()))
}

/// `root` and all processes that come from it, parents first. Servers that move their workers into groups of their own are
/// found all the same.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// The parent of a process, read from `/proc/<pid>/stat` (proc(5)): the second field after the name in parentheses.
fn parent(pid: u32) -> Option<u32> {
    let (_, rest) = stat(pid)?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn stat(pid: u32) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, rest) = stat.rsplit_once(')')?;
    Some((head.to_owned(), rest.to_owned()))
}

/// Whether a process runs: a dead one that nobody has waited for does not.
pub(crate) fn runs(pid: u32) -> bool {
    stat(pid).is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Sends a signal; a process that is gone needs none.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Sends a signal to a process and all that come from it.
pub(crate) fn signal_tree(pid: u32, what: Signal) {
    for pid in tree(pid) {
        signal(pid, what);
    }
}

/// Stops a process and all that come from it, and waits until none of their threads runs any more: a signal is heard a moment later.
pub(crate) fn stop_tree(pid: u32) {
    let all = tree(pid);
    for pid in &all {
        signal(*pid, Signal::STOP);
    }
    let stopped = || all.iter().all(|pid| !runs(*pid) || threads_are_stopped(*pid));
    wait_until(Duration::from_secs(5), stopped);
}

fn threads_are_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let mut states = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("stat")).ok()?;
        Some(text.rsplit_once(')')?.1.trim_start().starts_with(['T', 'Z', 'X']))
    });
    states.all(|stopped| stopped)
}

/// A directory of this user for what outlives a process, one for each checkout.
pub(crate) fn own_directory() -> Result<PathBuf, Error> {
    // Not in the target directory: servers run as other users, who may not pass through a home directory.
    let checkout = env!("CARGO_MANIFEST_DIR");
    let number = checkout.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let user = rustix::process::geteuid().as_raw();
    let path = std::env::temp_dir().join(format!("ruststream-servers-{user}-{number:x}"));
    fs::create_dir_all(&path).map_err(Error::during(path.display()))?;
    Ok(path)
}

/// A lock between processes, held until it is dropped.
pub(crate) struct Lock(#[expect(dead_code, reason = "closing the file unlocks it")] File);

impl Lock {
    pub(crate) fn take(name: &str) -> Result<Self, Error> {
        let path = own_directory()?.join(format!("{name}.lock"));
        let file = File::create(&path).map_err(Error::during(path.display()))?;
        file.lock().map_err(Error::during(path.display()))?;
        Ok(Self(file))
    }
}

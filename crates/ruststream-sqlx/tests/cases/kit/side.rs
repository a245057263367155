//! The side file: what handlers did, a line each.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::PATIENCE;

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// `begin` or `end` of a call, `sent` of a confirmed publish, `starting`, `ready`, `stale` and `workers` of a service.
    pub(crate) what: String,
    /// The id of the message; or the number that a service tells.
    pub(crate) id: u64,
    pub(crate) attempt: u32,
    pub(crate) node: String,
    pub(crate) process: u32,
    /// Since 1970, by the clock of the machine.
    pub(crate) at: Duration,
}

/// The time by the clock of the machine, since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// A side file.
#[derive(Debug, Clone)]
pub(crate) struct Side {
    path: PathBuf,
    file: Arc<File>,
}

impl Side {
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        Self {
            path: path.to_owned(),
            file: Arc::new(file),
        }
    }

    /// One write a line: lines of several processes never mix.
    pub(crate) fn write(&self, what: &str, id: u64, attempt: u32, node: &str) {
        let (process, at) = (std::process::id(), now().as_micros());
        let line = format!("{what} {id} {attempt} {node} {process} {at}\n");
        (&*self.file).write_all(line.as_bytes()).unwrap();
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        // A write over two pages of the file shows its first half before the second.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(parse).collect()
    }

    /// Watches the file until its lines are as they should be; answers them.
    pub(crate) async fn until(&self, what: &str, there: impl Fn(&[Line]) -> bool) -> Vec<Line> {
        let mut seen = 0;
        let mut lines = Vec::new();
        let watching = async {
            loop {
                let length = std::fs::metadata(&self.path).unwrap().len();
                if length != seen {
                    seen = length;
                    lines = self.lines();
                    if there(&lines) {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, watching).await.is_ok();
        let last = lines.iter().rev().take(12).collect::<Vec<_>>();
        assert!(in_time, "{what} never came; {} lines, the last: {last:#?}", lines.len());
        lines
    }

    /// Watches until so many calls have begun in all; answers all lines.
    pub(crate) async fn begun(&self, count: usize) -> Vec<Line> {
        self.until(&format!("the begin of {count} calls"), |lines| {
            of(lines, "begin").count() >= count
        })
        .await
    }

    /// Watches until so many calls have ended well in all; answers all lines.
    pub(crate) async fn ended(&self, count: usize) -> Vec<Line> {
        self.until(&format!("the end of {count} calls"), |lines| {
            of(lines, "end").count() >= count
        })
        .await
    }
}

/// A line that was only half written is none that `write` makes: it would be a fault of the kit.
fn parse(line: &str) -> Line {
    let words: Vec<&str> = line.split(' ').collect();
    let [what, id, attempt, node, process, at] = words[..] else {
        panic!("{line:?} is no line of a side file");
    };
    Line {
        what: what.to_owned(),
        id: id.parse().unwrap(),
        attempt: attempt.parse().unwrap(),
        node: node.to_owned(),
        process: process.parse().unwrap(),
        at: Duration::from_micros(at.parse().unwrap()),
    }
}

/// The lines of one kind.
pub(crate) fn of<'a>(lines: &'a [Line], what: &'a str) -> impl Iterator<Item = &'a Line> {
    lines.iter().filter(move |line| line.what == what)
}

/// The begins of a message, in order.
pub(crate) fn runs(lines: &[Line], id: u64) -> Vec<&Line> {
    of(lines, "begin").filter(|line| line.id == id).collect()
}

/// The attempts that a message's calls saw, in order.
pub(crate) fn attempts(lines: &[Line], id: u64) -> Vec<u32> {
    runs(lines, id).iter().map(|line| line.attempt).collect()
}

/// The good ends of a message.
pub(crate) fn ends(lines: &[Line], id: u64) -> usize {
    of(lines, "end").filter(|line| line.id == id).count()
}

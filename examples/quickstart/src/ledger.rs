//! What was done, one line each, in a file that outlives the process: the count by which the example is judged.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// What was done, one line each.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
}

/// What the ledger says.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How often each order was handled to its end.
    pub(crate) handled: BTreeMap<u64, u32>,
    /// How often the receipt of each order was mailed.
    pub(crate) mailed: BTreeMap<u64, u32>,
    /// Orders that needed more than one attempt.
    pub(crate) retried: usize,
    /// Whether a run has come to its end.
    pub(crate) finished: bool,
}

impl Ledger {
    /// Opens the ledger in `folder`, which is made if it is missing.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join("ledger.txt");
        let file = OpenOptions::new().create(true).append(true).read(true).open(&path)?;
        Ok(Self { path, file })
    }

    /// Notes that an order was handled.
    pub(crate) fn handled(&self, order: u64, attempt: u32) -> io::Result<()> {
        self.write(&format!(
            "handled {order} attempt {attempt} by {}\n",
            std::process::id()
        ))
    }

    /// Notes that a receipt was mailed.
    pub(crate) fn mailed(&self, order: u64) -> io::Result<()> {
        self.write(&format!("mailed {order} by {}\n", std::process::id()))
    }

    /// Notes that all is done.
    pub(crate) fn finished(&self) -> io::Result<()> {
        self.write("finished\n")
    }

    /// Wipes the ledger, for a new run.
    pub(crate) fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Keeps other copies of the program out until the answer is dropped.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let lock = File::create(self.path.with_extension("lock"))?;
        lock.lock()?;
        Ok(lock)
    }

    /// Adds up what the ledger says.
    pub(crate) fn tally(&self) -> io::Result<Tally> {
        let mut text = String::new();
        let mut file = File::open(&self.path)?;
        file.rewind()?;
        file.read_to_string(&mut text)?;
        let mut tally = Tally::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["handled", order, "attempt", attempt, ..] => {
                    *tally.handled.entry(order.parse().unwrap_or_default()).or_default() += 1;
                    tally.retried += usize::from(attempt != "1");
                }
                ["mailed", order, ..] => *tally.mailed.entry(order.parse().unwrap_or_default()).or_default() += 1,
                ["finished"] => tally.finished = true,
                _ => {}
            }
        }
        Ok(tally)
    }

    /// One write a line: lines of two copies of the program never mix.
    fn write(&self, line: &str) -> io::Result<()> {
        (&self.file).write_all(line.as_bytes())
    }
}

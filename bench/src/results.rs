//! The schema of `docs/benchmarks/results.json`.
//!
//! All rates are in messages a second, all times in the unit that their name ends with. Maps are ordered by key, so that two
//! runs differ in their figures only.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The version of the schema that this suite writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// Where the results stand that the pages are drawn from, seen from the root of the workspace.
pub const PATH: &str = "docs/benchmarks/results.json";

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`VERSION`].
    pub version: u32,
    /// The machine and the software of the last run. What may differ from row to row stands in the row.
    pub environment: Environment,
    /// The wall-clock rows, in the order of the pages.
    #[serde(default)]
    pub scenarios: Vec<Scenario>,
    /// What one message costs, counted.
    #[serde(default)]
    pub costs: Vec<Cost>,
}

/// Where and with what the figures were made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// The day of the last run in UTC: `2026-12-01`.
    pub date: String,
    /// The commit of the last run, with `+changes` behind it where the checkout had others.
    pub commit: String,
    /// The name of the processor.
    pub cpu: String,
    /// Logical processors.
    pub cores: usize,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// The distribution.
    pub os: String,
    /// The kernel and its release.
    pub kernel: String,
    /// `rustc --version`.
    pub rustc: String,
    /// How the loops were compiled.
    pub profile: Profile,
    /// The features of each transport's binary.
    pub features: BTreeMap<String, Vec<String>>,
    /// `RUSTFLAGS`, empty where none are set.
    pub rustflags: String,
    /// The load averages of 1, 5 and 15 minutes when the last run began. Each row has its own.
    pub load_average: [f64; 3],
    /// Whether loops and servers of the last run shared one processor.
    pub pinned: bool,
    /// Rounds of the last run.
    pub rounds: usize,
    /// The length in seconds that each loop's round was calibrated to.
    pub seconds: f64,
    /// `valgrind --version`, where costs were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valgrind: Option<String>,
    /// The versions of the client libraries, from `Cargo.lock`.
    pub clients: BTreeMap<String, String>,
    /// The servers, by the name of the transport.
    pub servers: BTreeMap<String, Server>,
}

/// The compiler's settings, from the workspace's `Cargo.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The name of the profile.
    pub name: String,
    /// `opt-level`.
    pub opt_level: String,
    /// `lto`.
    pub lto: String,
    /// `codegen-units`.
    pub codegen_units: u32,
}

/// A server, or the library that takes its place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// What it says its version is.
    pub version: String,
    /// The settings that matter for speed, asked of the server.
    pub settings: BTreeMap<String, String>,
    /// The time of one trivial command, by the name of the command: the median of many, one after another.
    pub round_trip_us: BTreeMap<String, f64>,
}

/// One wall-clock row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The name of the row: `sqlite.lease.each.w1`.
    pub id: String,
    /// What the row is about: the part of the id before the first dot.
    pub transport: String,
    /// A short name for people.
    pub title: String,
    /// What the loops do, in one or two sentences.
    pub about: String,
    /// Workers of the service, and tasks of the loops beside it.
    pub workers: usize,
    /// The loop that the others are held against: `bare`, or `none` for an outbox.
    pub baseline: String,
    /// The loops by name.
    pub loops: BTreeMap<String, Loop>,
    /// Set where the baseline waits for round trips at least half its time. The distances of the other loops to it are then
    /// lower bounds: their work fits into the waiting.
    pub bound: Option<Bound>,
    /// The part of its time that one task of the baseline spends on round trips; none where there is no server.
    pub round_trip_share: Option<f64>,
    /// Each other loop held against the baseline, and the crate's outbox against the one written by hand.
    pub verdicts: BTreeMap<String, Verdict>,
    /// When and how the row was measured.
    pub run: Run,
}

/// How fast one loop was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// The fastest round.
    pub best: f64,
    /// The median round: of an even number of rounds, the mean of the two in the middle.
    pub median: f64,
    /// The slowest round.
    pub worst: f64,
    /// All rounds in the order in which they were run.
    pub rounds: Vec<f64>,
    /// Messages of one round.
    pub messages: u64,
}

/// What the baseline of a row waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// A database.
    Database,
    /// A message broker.
    Broker,
}

/// One loop held against another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The other loop.
    pub against: String,
    /// The best round over the other's best round: 2 is twice as fast.
    pub ratio: f64,
    /// How far the rounds of one loop lie apart, as a part of its best: the larger of the two.
    pub spread: f64,
    /// What may be concluded.
    pub verdict: Conclusion,
}

/// What may be concluded from two loops' rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Conclusion {
    /// Faster, by more than the rounds' spread.
    Faster,
    /// Slower, by more than the rounds' spread.
    Slower,
    /// The difference is no larger than the rounds' spread.
    Indistinguishable,
}

/// When and how one row was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The day in UTC.
    pub date: String,
    /// The commit, as in [`Environment::commit`].
    pub commit: String,
    /// Rounds of each loop.
    pub rounds: usize,
    /// The length that a round was calibrated to.
    pub seconds: f64,
    /// Whether loops and servers shared one processor.
    pub pinned: bool,
    /// Load averages just before the row.
    pub load_average: [f64; 3],
}

/// What one message costs in instructions and allocations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The name of the row: `memory.json-small`.
    pub id: String,
    /// The part of the id before the first dot.
    pub transport: String,
    /// A short name for people.
    pub title: String,
    /// Instructions a message, start-up cancelled out.
    pub instructions: f64,
    /// Allocations a message, start-up cancelled out.
    pub allocations: f64,
    /// What the gate holds the row to, where it is not the committed figure itself.
    #[serde(default)]
    pub limit: Option<Counts>,
    /// What is spent once: connect, subscribe, first delivery.
    #[serde(default)]
    pub cold: Option<Counts>,
    /// The hand-written counterpart, a message.
    #[serde(default)]
    pub bare: Option<Counts>,
    /// Counterparts besides: `none` and `hand` of an outbox.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, Counts>,
}

/// Instructions and allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions, by callgrind.
    pub instructions: f64,
    /// Allocations, by DHAT.
    pub allocations: f64,
}

impl Results {
    /// Results without a row.
    pub fn new(environment: Environment) -> Self {
        Self {
            version: VERSION,
            environment,
            scenarios: Vec::new(),
            costs: Vec::new(),
        }
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// Where the text is no JSON, is of another version, or lacks a key.
    pub fn parse(text: &str) -> Result<Self, ResultsError> {
        #[derive(Deserialize)]
        struct Version {
            version: Option<serde_json::Value>,
        }
        let unreadable = |error: serde_json::Error| ResultsError(format!("no results of a benchmark: {error}"));
        match serde_json::from_str::<Version>(text).map_err(unreadable)?.version {
            Some(version) if version == VERSION => serde_json::from_str(text).map_err(unreadable),
            Some(version) => Err(ResultsError(format!(
                "the results are of version {version}, and this suite reads and writes version {VERSION}: check out the commit \
                 that wrote them, or measure anew into another file (`--out FILE`)"
            ))),
            None => Err(ResultsError(
                "no results of a benchmark: the key `version` is missing".to_owned(),
            )),
        }
    }

    /// Reads a file; none where there is no file.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and where the file cannot be read.
    pub fn read(path: &Path) -> Result<Option<Self>, ResultsError> {
        let named = |error: &dyn fmt::Display| ResultsError(format!("{}: {error}", path.display()));
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map(Some).map_err(|error| named(&error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named(&error)),
        }
    }

    /// Writes a file, whole or not at all.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ResultsError> {
        let named = |error: &dyn fmt::Display| ResultsError(format!("{}: {error}", path.display()));
        let mut text = serde_json::to_string_pretty(self).map_err(|error| named(&error))?;
        text.push('\n');
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| named(&error))?;
        }
        let mut beside = PathBuf::from(path).into_os_string();
        beside.push(".new");
        let write = || {
            let mut file = std::fs::File::create(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&beside, path)
        };
        write().map_err(|error| named(&error))
    }
}

/// Why results could not be read or written.
#[derive(Debug)]
pub struct ResultsError(String);

impl fmt::Display for ResultsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ResultsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("benchmarks/results.json");
        assert_eq!(Results::read(&path).unwrap(), None);
        let results = Results::new(Environment {
            cores: 2,
            ..Environment::default()
        });
        results.write(&path).unwrap();
        assert_eq!(Results::read(&path).unwrap(), Some(results));
    }

    #[test]
    fn another_version_is_refused_with_both_numbers() {
        let error = Results::parse(r#"{"version": 2, "rows": []}"#).unwrap_err().to_string();
        assert!(error.contains("version 2") && error.contains("version 1"), "{error}");
    }

    #[test]
    fn what_has_no_version_is_no_results_file() {
        for text in ["{}", "[1]", "", r#"{"version": "new"}"#] {
            assert!(Results::parse(text).is_err(), "{text}");
        }
    }
}

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
    /// Each other loop held against the baseline.
    pub verdicts: BTreeMap<String, Verdict>,
    /// Each other loop held against the best one written by hand, `tuned` or `hand`, where there is one besides the baseline.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_hand: BTreeMap<String, Verdict>,
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
    /// The most that a message is meant to cost. The gate holds a row to its committed figure.
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

    /// Takes over the environment of a new run, whose rows are then [`put`](Self::put) beside those that are there.
    ///
    /// # Errors
    ///
    /// Where rows are there that were measured on another machine or built in another way: one file holds only figures that can
    /// be compared.
    pub fn measured_in(&mut self, mut new: Environment) -> Result<(), ResultsError> {
        let old = &mut self.environment;
        if !self.scenarios.is_empty() {
            let compared = [
                ("cpu", old.cpu.clone(), new.cpu.clone()),
                ("cores", old.cores.to_string(), new.cores.to_string()),
                ("rustc", old.rustc.clone(), new.rustc.clone()),
                ("rustflags", old.rustflags.clone(), new.rustflags.clone()),
                ("profile", format!("{:?}", old.profile), format!("{:?}", new.profile)),
            ];
            if let Some((what, was, is)) = compared.iter().find(|(_, was, is)| was != is) {
                return Err(ResultsError(format!(
                    "its rows were measured with {what} `{was}`, and this run has `{is}`: figures of both do not belong in one \
                     file. Measure all rows again (without --only), or write into another file (`--out FILE`)"
                )));
            }
        }
        old.clients.append(&mut new.clients);
        old.features.append(&mut new.features);
        old.servers.append(&mut new.servers);
        self.environment = Environment {
            clients: std::mem::take(&mut old.clients),
            features: std::mem::take(&mut old.features),
            servers: std::mem::take(&mut old.servers),
            valgrind: new.valgrind.take().or_else(|| old.valgrind.take()),
            ..new
        };
        Ok(())
    }

    /// Puts a row in the place of the one with its id, or at the end.
    pub fn put(&mut self, row: Scenario) {
        match self.scenarios.iter_mut().find(|one| one.id == row.id) {
            Some(place) => *place = row,
            None => self.scenarios.push(row),
        }
    }

    /// Brings the rows of a transport into this order and drops those that are not in it. Other transports stay as they are.
    pub fn arrange(&mut self, transport: &str, order: &[&str]) {
        let place = |row: &Scenario| order.iter().position(|id| *id == row.id);
        let first = self.scenarios.iter().position(|row| row.transport == transport);
        let (mut own, mut rows): (Vec<_>, Vec<_>) = std::mem::take(&mut self.scenarios)
            .into_iter()
            .partition(|row| row.transport == transport);
        own.retain(|row| place(row).is_some());
        own.sort_by_key(place);
        // All rows before the first of its own are others', so the position holds in what is left.
        let first = first.unwrap_or(rows.len());
        rows.splice(first..first, own);
        self.scenarios = rows;
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

    fn row(id: &str, workers: usize) -> Scenario {
        Scenario {
            id: id.to_owned(),
            transport: id.split('.').next().unwrap().to_owned(),
            title: String::new(),
            about: String::new(),
            workers,
            baseline: "bare".to_owned(),
            loops: BTreeMap::new(),
            bound: None,
            round_trip_share: None,
            verdicts: BTreeMap::new(),
            by_hand: BTreeMap::new(),
            run: Run::default(),
        }
    }

    fn ids(results: &Results) -> Vec<&str> {
        results.scenarios.iter().map(|row| row.id.as_str()).collect()
    }

    #[test]
    fn a_partial_run_replaces_its_rows_and_leaves_the_others() {
        let mut results = Results::new(Environment::default());
        for id in ["memory.drain", "sqlite.old", "sqlite.b", "redis.stream"] {
            results.put(row(id, 1));
        }
        results.put(row("sqlite.b", 8));
        results.put(row("sqlite.a", 4));
        results.arrange("sqlite", &["sqlite.a", "sqlite.b"]);
        assert_eq!(ids(&results), ["memory.drain", "sqlite.a", "sqlite.b", "redis.stream"]);
        let workers: Vec<_> = results.scenarios.iter().map(|row| row.workers).collect();
        assert_eq!(workers, [1, 4, 8, 1]);
        results.arrange("mqtt", &["mqtt.qos0"]);
        assert_eq!(ids(&results).len(), 4);
    }

    #[test]
    fn rows_of_another_machine_or_compiler_are_not_mixed_with_new_ones() {
        let old = Environment {
            cpu: "slow".to_owned(),
            ..Environment::default()
        };
        let new = || Environment {
            cpu: "quick".to_owned(),
            ..Environment::default()
        };
        let mut results = Results::new(old);
        results.measured_in(new()).expect("no row is there yet");
        results.measured_in(new()).unwrap();
        results.put(row("sqlite.a", 1));
        let other = Environment {
            rustc: "rustc 2.0.0".to_owned(),
            ..new()
        };
        let error = results.measured_in(other).unwrap_err().to_string();
        assert!(error.contains("rustc 2.0.0") && error.contains("--out"), "{error}");
        assert_eq!(results.environment, new(), "a refused run changes nothing");
    }

    #[test]
    fn the_servers_and_clients_of_other_transports_stay() {
        let with = |client: &str, date: &str| Environment {
            date: date.to_owned(),
            clients: BTreeMap::from([(client.to_owned(), "1".to_owned())]),
            ..Environment::default()
        };
        let mut results = Results::new(with("sqlx", "yesterday"));
        results.measured_in(with("fred", "today")).unwrap();
        assert_eq!(results.environment.date, "today");
        assert!(results.environment.clients.keys().eq(["fred", "sqlx"]));
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

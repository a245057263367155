//! `cargo xtask bench --cost`: what one message costs, counted under valgrind by gungraun.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::named;
use crate::steps::{Cargo, Failed, Steps};

/// The program that gungraun's benchmarks start. It must be of the version of the library.
const RUNNER: &str = "gungraun-runner";
/// The transport whose counts are the same in every run.
const IN_PROCESS: &str = "memory";
/// Where the figures stand.
const RESULTS: &str = "docs/benchmarks/results.json";

/// What was asked for.
#[derive(Debug, PartialEq)]
pub(crate) struct Cost {
    gate: bool,
    only: Vec<String>,
    out: Option<PathBuf>,
}

/// Reads the words behind `bench`, of which one is `--cost`.
pub(crate) fn parse(words: &[&str]) -> Result<Cost, String> {
    let mut cost = Cost {
        gate: false,
        only: Vec::new(),
        out: None,
    };
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let (option, joined) = word
            .split_once('=')
            .map_or((word, None), |(option, value)| (option, Some(value)));
        let mut value = || joined.or_else(|| words.next()).ok_or(format!("{option} needs a value"));
        match option {
            "--cost" => {}
            "--gate" => cost.gate = true,
            "--only" => cost.only.extend(value()?.split(',').map(str::to_owned)),
            "--out" => {
                let file = value()?;
                let absolute = std::path::absolute(file).map_err(|error| format!("--out {file}: {error}"))?;
                cost.out = Some(absolute);
            }
            _ => return Err(format!("{option} does not go with --cost")),
        }
    }
    if cost.gate && cost.out.is_some() {
        return Err("--gate writes nothing, so there is no --out".to_owned());
    }
    Ok(cost)
}

/// Holds all costs to the committed figures.
pub(crate) fn gate(steps: &mut Steps) -> Result<(), Failed> {
    let all = Cost {
        gate: true,
        only: Vec::new(),
        out: None,
    };
    all.run(steps)
}

impl Cost {
    /// Counts, and writes the figures or judges them.
    pub(crate) fn run(&self, steps: &mut Steps) -> Result<(), Failed> {
        let rerun = self.to_string();
        let failed = |error: String| Failed::new("bench --cost", error, &rerun);
        let wanted = self.wanted(steps.root()).map_err(failed)?;
        let mut runner = PathBuf::new();
        steps.check(
            "bench tools",
            "finds or installs valgrind and gungraun's runner",
            |root| {
                // Without the symbols of the C library valgrind does not start.
                servers::program("/usr/bin/valgrind", &["valgrind", "libc6-dbg"]).map_err(|error| error.to_string())?;
                runner = find_runner(root)?;
                Ok(runner.join(RUNNER).display().to_string())
            },
        )?;
        let does = "instructions by callgrind, allocations by DHAT, cold starts and hand-written counterparts included";
        steps.check("bench --cost", does, |root| {
            let mut counts = String::new();
            for transport in &wanted {
                counts.push_str(&self.count(root, transport, &runner)?);
            }
            let file = target(root).join("costs.jsonl");
            fs::write(&file, counts).map_err(|error| format!("{}: {error}", file.display()))?;
            self.judge(root, &file)?;
            Ok(String::new())
        })
    }

    /// The transports whose costs are asked for.
    fn wanted(&self, root: &Path) -> Result<Vec<String>, String> {
        let manifest = fs::read_to_string(root.join("bench/Cargo.toml")).unwrap_or_default();
        let transports = named(&manifest, "costs_");
        let transport_of = |id: &str| id.split('.').next().unwrap_or_default().to_owned();
        if let Some(id) = self.only.iter().find(|id| !transports.contains(&transport_of(id))) {
            return Err(format!(
                "no cost is named `{id}`: ids begin with one of {}",
                transports.join(", ")
            ));
        }
        let asked = |transport: &String| match &self.only[..] {
            // How many messages a read of a server brings differs from run to run, and so does what each costs.
            [] => !self.gate || transport == IN_PROCESS,
            only => only.iter().any(|id| transport_of(id) == *transport),
        };
        Ok(transports.into_iter().filter(asked).collect())
    }

    /// Builds and counts the programs of one transport; answers with what gungraun prints.
    fn count(&self, root: &Path, transport: &str, runner: &Path) -> Result<String, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let cargo = Cargo::new("bench --package ruststream-bench --features")
            .argument(&format!("costs,{transport}"))
            .argument("--bench")
            .argument(&format!("costs_{transport}"))
            .pass_on(&["--output-format=json".to_owned(), "--parallel=auto".to_owned()]);
        let mut command = cargo.command(root);
        command
            .env("PATH", format!("{}:{path}", runner.display()))
            .env("COSTS_ONLY", self.only.join(","))
            .stdout(Stdio::piped());
        let output = command
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .map_err(|error| format!("{cargo}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{cargo}: {}", output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Writes the figures, or holds them to what is written.
    fn judge(&self, root: &Path, counts: &Path) -> Result<(), String> {
        let results = self.out.clone().unwrap_or_else(|| root.join(RESULTS));
        let cargo = Cargo::new("run --quiet --package ruststream-bench --features figures --bin costs --")
            .argument(if self.gate { "gate" } else { "record" })
            .argument(&results.to_string_lossy())
            .argument(&valgrind_version()?);
        let counts = File::open(counts).map_err(|error| format!("{}: {error}", counts.display()))?;
        let status = cargo.command(root).stdin(counts).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(_) if self.gate => Err("costs have risen".to_owned()),
            Ok(status) => Err(format!("{cargo}: {status}")),
            Err(error) => Err(format!("{cargo}: {error}")),
        }
    }
}

/// As a person would type it.
impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cargo xtask bench --cost")?;
        if self.gate {
            f.write_str(" --gate")?;
        }
        if !self.only.is_empty() {
            write!(f, " --only {}", self.only.join(","))?;
        }
        Ok(())
    }
}

/// The folder of a runner of the right version: the one on the path, or one of this checkout's own, which is installed if need be.
fn find_runner(root: &Path) -> Result<PathBuf, String> {
    let version = locked_version(&root.join("Cargo.lock"))?;
    let is_right = |program: &Path| {
        let output = std::process::Command::new(program).arg("--version").output();
        output.is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout)
                .trim()
                .ends_with(&format!(" {version}"))
        })
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = target(root).join("tools");
    let folders = std::env::split_paths(&path).chain([own.join("bin")]);
    for folder in folders {
        let program = folder.join(RUNNER);
        if program.exists() && is_right(&program) {
            return Ok(folder);
        }
    }
    eprintln!("installing {RUNNER} {version} into {}", own.display());
    // Not optimized: it waits for valgrind, and is built in a third of the time.
    let cargo = Cargo::new("install --quiet --locked --debug")
        .argument(RUNNER)
        .argument("--version")
        .argument(&format!("={version}"))
        .argument("--root")
        .argument(&own.to_string_lossy())
        // Kept, so that the next version builds on what it shares with this one.
        .argument("--target-dir")
        .argument(&own.join("build").to_string_lossy());
    let status = cargo.command(root).status();
    match status {
        Ok(status) if status.success() => Ok(own.join("bin")),
        Ok(status) => Err(format!("{cargo}: {status}")),
        Err(error) => Err(format!("{cargo}: {error}")),
    }
}

/// The version of the library, from the lock file.
fn locked_version(lock: &Path) -> Result<String, String> {
    let text = fs::read_to_string(lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    version_of("gungraun", &text).ok_or_else(|| "Cargo.lock names no version of gungraun".to_owned())
}

fn version_of(package: &str, lock: &str) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines.nth(1)?.strip_prefix("version = \"")?;
    Some(version.trim_end_matches('"').to_owned())
}

fn valgrind_version() -> Result<String, String> {
    let output = std::process::Command::new("valgrind").arg("--version").output();
    let output = output.map_err(|error| format!("valgrind --version: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_command_are_understood() {
        let cost = parse(&["--cost", "--only", "memory.bytes,memory.reply", "--gate"]).unwrap();
        assert!(cost.gate);
        assert_eq!(cost.only, ["memory.bytes", "memory.reply"]);
        assert_eq!(
            cost.to_string(),
            "cargo xtask bench --cost --gate --only memory.bytes,memory.reply"
        );
    }

    #[test]
    fn what_measures_times_does_not_go_with_costs() {
        for words in [&["--cost", "--rounds", "3"][..], &["--cost", "--gate", "--out", "x"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_runner_is_of_the_version_of_the_library() {
        let lock = "[[package]]\nname = \"gungraun-common\"\nversion = \"0.1.0\"\n\n\
                    [[package]]\nname = \"gungraun\"\nversion = \"0.20.0\"\n";
        assert_eq!(version_of("gungraun", lock).as_deref(), Some("0.20.0"));
        assert_eq!(version_of("else", lock), None);
    }
}

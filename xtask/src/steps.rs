//! Steps: what a chore does one after another, each announced, timed, and named when it fails.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs steps in the workspace and keeps count of them.
pub(crate) struct Steps {
    root: PathBuf,
    started: Instant,
    done: usize,
}

impl Steps {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            started: now(),
            done: 0,
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Runs a cargo command, its output going to the terminal.
    pub(crate) fn cargo(&mut self, name: &'static str, cargo: &Cargo) -> Result<(), Failed> {
        let shown = cargo.to_string();
        self.step(name, &shown, &shown, |root| {
            let status = cargo.command(root).status();
            match status {
                Ok(status) if status.success() => Ok(None),
                Ok(status) => Err(status.to_string()),
                Err(error) => Err(format!("cargo could not be started: {error}")),
            }
        })
    }

    /// Runs a check of this crate's own; it answers with what it found, or with what is wrong.
    pub(crate) fn check(
        &mut self,
        name: &'static str,
        does: &str,
        check: impl FnOnce(&Path) -> Result<String, String>,
    ) -> Result<(), Failed> {
        let rerun = format!("cargo xtask {name}");
        self.step(name, does, &rerun, |root| check(root).map(Some))
    }

    fn step(
        &mut self,
        name: &'static str,
        does: &str,
        rerun: &str,
        run: impl FnOnce(&Path) -> Result<Option<String>, String>,
    ) -> Result<(), Failed> {
        let number = self.done + 1;
        eprintln!("[{number}] {name}: {does}");
        let started = now();
        let found = run(&self.root).map_err(|reason| Failed {
            step: name,
            reason,
            rerun: rerun.to_owned(),
        })?;
        let found = found.map(|found| format!(" ({found})")).unwrap_or_default();
        eprintln!("[{number}] {name}: ok in {}{found}", Seconds(started.elapsed()));
        self.done = number;
        Ok(())
    }

    /// The closing line of a chore that went well.
    pub(crate) fn summary(&self) -> String {
        let plural = if self.done == 1 { "" } else { "s" };
        format!("{} step{plural} ok in {}", self.done, Seconds(self.started.elapsed()))
    }
}

/// A call of cargo, as it is run and as a person would type it.
pub(crate) struct Cargo {
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
}

impl Cargo {
    /// `cargo` with the words of `line` as arguments.
    pub(crate) fn new(line: &str) -> Self {
        Self {
            arguments: line.split_whitespace().map(str::to_owned).collect(),
            environment: Vec::new(),
        }
    }

    /// Adds one argument, spaces and all.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Adds words for the program that cargo runs.
    pub(crate) fn pass_on(mut self, words: &[String]) -> Self {
        self.arguments.push("--".to_owned());
        self.arguments.extend_from_slice(words);
        self
    }

    /// Sets an environment variable for the call.
    pub(crate) fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// The command, to be run in `root` by the cargo that runs this crate.
    pub(crate) fn command(&self, root: &Path) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(&self.arguments).current_dir(root);
        command.envs(self.environment.iter().copied());
        command
    }

    /// Runs it unseen and answers with what it printed.
    pub(crate) fn output(&self, root: &Path) -> Result<String, String> {
        let output = self
            .command(root)
            .output()
            .map_err(|error| format!("{self}: {error}"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{self}: {}\n{said}", output.status))
        }
    }
}

impl fmt::Display for Cargo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", Word(value))?;
        }
        f.write_str("cargo")?;
        for argument in &self.arguments {
            write!(f, " {}", Word(argument))?;
        }
        Ok(())
    }
}

/// A word of a shell line, quoted where it has to be.
struct Word<'a>(&'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,".contains(c);
        if !self.0.is_empty() && self.0.chars().all(plain) {
            f.write_str(self.0)
        } else {
            write!(f, "'{}'", self.0.replace('\'', r"'\''"))
        }
    }
}

/// The step that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    step: &'static str,
    reason: String,
    rerun: String,
}

impl Failed {
    /// A step that could not begin.
    pub(crate) fn new(step: &'static str, reason: String, rerun: &str) -> Self {
        Self {
            step,
            reason,
            rerun: rerun.to_owned(),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, reason, rerun } = self;
        write!(f, "\nerror: step `{step}` failed: {reason}\nto run it alone: {rerun}")
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "no runtime here, and the time shown is the wall's"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_as_it_would_be_typed() {
        let cargo = Cargo::new("doc --no-deps")
            .environment("RUSTDOCFLAGS", "-D warnings")
            .argument("it's");
        assert_eq!(
            cargo.to_string(),
            r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'it'\''s'"
        );
    }

    #[test]
    fn a_failure_names_its_step_and_how_to_run_it_again() {
        let mut steps = Steps::new(PathBuf::from("."));
        let failed = steps
            .check("tree", "counts", |_| Err("91 crates".to_owned()))
            .unwrap_err();
        assert_eq!(
            failed.to_string(),
            "\nerror: step `tree` failed: 91 crates\nto run it alone: cargo xtask tree"
        );
    }
}

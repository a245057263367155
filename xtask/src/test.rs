//! `cargo xtask test`: all tests of the workspace.

use crate::steps::{Cargo, Failed, Steps};
use crate::{docs, services};

/// All tests, then all doc tests.
pub(crate) fn all(steps: &mut Steps) -> Result<(), Failed> {
    docs::browser(steps)?;
    services::start(steps, &[])?;
    let tested = both(steps);
    services::stop(steps, &[])?;
    tested
}

fn both(steps: &mut Steps) -> Result<(), Failed> {
    steps.cargo("tests", &runner(steps))?;
    // The fast runner knows no doc tests, so cargo runs them for either runner.
    steps.cargo("doc-tests", &Cargo::new("test --doc --workspace --all-features"))
}

/// The tests whose name contains `filter`.
pub(crate) fn some(steps: &mut Steps, filter: &str) -> Result<(), Failed> {
    steps.cargo("tests", &runner(steps).argument(filter))
}

/// `cargo nextest` where it is installed; otherwise `cargo test`, on the same targets.
fn runner(steps: &Steps) -> Cargo {
    if Cargo::new("nextest --version").output(steps.root()).is_ok() {
        Cargo::new("nextest run --workspace --all-features --no-fail-fast")
    } else {
        Cargo::new("test --workspace --all-features --no-fail-fast --lib --bins --tests --examples")
    }
}

//! `cargo xtask lint`: everything that is checked besides tests, the quick checks first.

use crate::steps::{Cargo, Failed, Steps};
use crate::{imports, tree};

/// All checks.
pub(crate) fn all(steps: &mut Steps) -> Result<(), Failed> {
    steps.cargo("format", &Cargo::new("fmt --all --check"))?;
    self::imports(steps)?;
    self::tree(steps)?;
    steps.cargo(
        "clippy",
        &Cargo::new("clippy --workspace --all-targets --all-features -- -D warnings"),
    )?;
    steps.cargo(
        "docs",
        &Cargo::new("doc --workspace --no-deps --all-features").environment("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// The rooms import in one direction.
pub(crate) fn imports(steps: &mut Steps) -> Result<(), Failed> {
    steps.check(
        "imports",
        "the rooms of the crates import in one direction",
        imports::check,
    )
}

/// The default dependency tree is small.
pub(crate) fn tree(steps: &mut Steps) -> Result<(), Failed> {
    let does = format!(
        "`ruststream` with its default features needs at most {} crates",
        tree::LIMIT
    );
    steps.check("tree", &does, tree::check)
}

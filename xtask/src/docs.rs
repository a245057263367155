//! `cargo xtask docs`: the site in `docs/`, built into `target/site`.

use crate::steps::{Cargo, Failed, Steps};

/// Builds the pages and checks all links.
pub(crate) fn site(steps: &mut Steps) -> Result<(), Failed> {
    steps.cargo("site", &Cargo::new("run --quiet -p site -- . target/site"))
}

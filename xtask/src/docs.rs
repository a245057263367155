//! `cargo xtask docs`: the site in `docs/`, built into `target/site`, and the browser that a test looks at it with.

use crate::steps::{Cargo, Failed, Steps};

/// Builds the pages and checks all links.
pub(crate) fn site(steps: &mut Steps) -> Result<(), Failed> {
    steps.cargo("site", &Cargo::new("run --quiet -p site -- . target/site"))
}

/// Finds or installs the browser before the tests begin, so that no test's time goes into it.
pub(crate) fn browser(steps: &mut Steps) -> Result<(), Failed> {
    steps.check(
        "test",
        "finds or installs headless Chromium, in which a test looks at the site",
        |_| {
            let program = servers::chromium().map_err(|error| error.to_string())?;
            Ok(program.display().to_string())
        },
    )
}

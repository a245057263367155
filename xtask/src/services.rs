//! `cargo xtask services`: the servers that tests and benchmarks talk to.

use servers::Kind;

use crate::steps::{Failed, Steps};

/// Starts the servers named, all where none is, and says how to point programs at them.
pub(crate) fn start(steps: &mut Steps, names: &[&str]) -> Result<(), Failed> {
    steps.check("services start", "finds, installs or starts the servers", |_| {
        let mut lines = Vec::new();
        for kind in kinds(names)? {
            let url = servers::shared(kind).map_err(|error| error.to_string())?;
            lines.push(format!("\n{}={url}", kind.variable()));
        }
        Ok(lines.concat())
    })
}

/// Ends the servers named, all where none is, of those that were started from this checkout.
pub(crate) fn stop(steps: &mut Steps, names: &[&str]) -> Result<(), Failed> {
    steps.check("services stop", "ends the servers started from here", |_| {
        let mut ended = Vec::new();
        for kind in kinds(names)? {
            if servers::stop_shared(kind).map_err(|error| error.to_string())? {
                ended.push(kind.name());
            }
        }
        Ok(format!("ended: {}", list(&ended)))
    })
}

/// Says which servers run.
pub(crate) fn status(steps: &mut Steps) -> Result<(), Failed> {
    steps.check("services status", "looks for servers", |_| {
        let mut lines = Vec::new();
        for kind in Kind::ALL {
            let url = servers::shared_running(kind).map_err(|error| error.to_string())?;
            let url = url.unwrap_or_else(|| "not running".to_owned());
            lines.push(format!("\n{:<10} {url}", kind.name()));
        }
        Ok(lines.concat())
    })
}

fn kinds(names: &[&str]) -> Result<Vec<Kind>, String> {
    if names.is_empty() {
        return Ok(Kind::ALL.to_vec());
    }
    let known = Kind::ALL.map(Kind::name);
    let kind = |name: &&str| {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.name() == *name)
            .ok_or_else(|| format!("no server is called {name:?}; there are {}", known.join(", ")))
    };
    names.iter().map(kind).collect()
}

fn list(names: &[&str]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

//! The size of the default dependency tree: what a hello-world service has to compile.

use std::collections::BTreeSet;
use std::path::Path;

use crate::steps::Cargo;

/// The most crates that a service with the default features compiles, `ruststream` included.
pub(crate) const LIMIT: usize = 90;

/// Counts the crates; answers with the count, or with all of them where they are too many.
pub(crate) fn check(root: &Path) -> Result<String, String> {
    let tree = Cargo::new("tree -p ruststream -e normal --prefix none").output(root)?;
    let crates = crates(&tree);
    let count = crates.len();
    if count <= LIMIT {
        return Ok(format!("{count} crates"));
    }
    let list = crates.into_iter().collect::<Vec<_>>().join(", ");
    Err(format!(
        "{count} crates, the limit is {LIMIT}: {list}\n\
         drop a dependency, or put it behind a feature that is off by default"
    ))
}

/// The crates of a `cargo tree`, each once: name and version.
fn crates(tree: &str) -> BTreeSet<String> {
    let name_and_version = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    tree.lines()
        .map(name_and_version)
        .filter(|line| !line.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_and_each_version_of_it_by_itself() {
        let tree =
            "app v0.1.0 (/somewhere)\nsyn v2.0.1\nserde_derive v1.0.0 (proc-macro)\nsyn v2.0.1 (*)\n\nsyn v1.0.9\n";
        assert_eq!(
            crates(tree).into_iter().collect::<Vec<_>>(),
            ["app v0.1.0", "serde_derive v1.0.0", "syn v1.0.9", "syn v2.0.1"]
        );
    }
}

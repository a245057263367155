//! Builds the site in `docs/`.
//!
//! The pages are mdBook's. Beside its own directives they know three of this crate: `{{#code ..}}` shows items of a file that is
//! compiled, `{{#proof ..}}` names the test behind a promise, `{{#benchmarks ..}}` draws the charts of a transport. What a directive
//! names and what is not there is an error of the build, and so is a link that leads nowhere.

mod chart;
mod code;
mod directives;
mod html;
mod links;
mod number;
mod pages;
mod proof;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mdbook_driver::MDBook;
use ruststream_bench::results::Results;

use crate::directives::Directives;

/// Builds the pages of the workspace `root` into the folder `out`, with the figures of the file `results`, and checks all links.
///
/// # Errors
///
/// Where a page, a file that it shows, a test that it names or a figure is missing, a link leads nowhere, or a file cannot be written.
pub fn build(root: &Path, results: &Path, out: &Path) -> Result<Built> {
    // A relative folder would be seen from the book's.
    let out = &std::path::absolute(out)?;
    let mut book = MDBook::load(root.join("docs")).context("docs/book.toml")?;
    out.clone_into(&mut book.config.build.build_dir);
    let figures = Results::read(results)?;
    let figures = figures.with_context(|| format!("{}: `cargo xtask bench` writes it", results.display()))?;
    book.with_preprocessor(Directives::new(root, figures));
    book.build()?;
    // Published beside the pages that are drawn from it.
    std::fs::copy(results, out.join("benchmarks/results.json")).context("benchmarks/results.json")?;
    let links = links::check_site(out)? + links::check_documents(root)?;
    Ok(Built {
        index: out.join("index.html"),
        links,
    })
}

/// What was built.
#[derive(Debug)]
pub struct Built {
    index: PathBuf,
    links: usize,
}

impl fmt::Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, links } = self;
        write!(f, "{links} links lead somewhere; open {}", index.display())
    }
}

//! The directives of the pages: `{{#code FILE: ITEM, ITEM}}`, `{{#proof TEST, TEST}}`, `{{#benchmarks TRANSPORT TRANSPORT}}`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use mdbook_driver::book::{Book, BookItem};
use mdbook_driver::errors::Error;
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};
use ruststream_bench::results::Results;

use crate::proof::Proofs;
use crate::{chart, code};

/// Puts in the place of each directive what it stands for.
pub(crate) struct Directives {
    root: PathBuf,
    results: Results,
}

impl Directives {
    pub(crate) fn new(root: &Path, results: Results) -> Self {
        Self {
            root: root.to_owned(),
            results,
        }
    }

    /// Transports with figures and without a page.
    fn check_all_are_shown(&self, shown: &BTreeSet<String>) -> Result<()> {
        let scenarios = self.results.scenarios.iter().map(|row| &row.transport);
        let costs = self.results.costs.iter().map(|row| &row.transport);
        for transport in scenarios.chain(costs) {
            if !shown.contains(transport) {
                bail!(
                    "`{transport}` has figures in results.json and no page: name it in a `{{{{#benchmarks ..}}}}` of a page in \
                     docs/src/benchmarks"
                );
            }
        }
        Ok(())
    }
}

impl Preprocessor for Directives {
    fn name(&self) -> &'static str {
        "directives"
    }

    fn run(&self, _: &PreprocessorContext, mut book: Book) -> Result<Book, Error> {
        let proofs = Proofs::read(&self.root)?;
        let mut shown = BTreeSet::new();
        let mut failed = None;
        book.for_each_mut(|item| {
            let BookItem::Chapter(chapter) = item else { return };
            let page = chapter.source_path.clone().unwrap_or_default();
            let replaced = replace(&chapter.content, |name, arguments| match name {
                "code" => show_code(&self.root, arguments),
                "proof" => show_proofs(&proofs, arguments),
                "benchmarks" => {
                    let transports: Vec<_> = arguments.split_whitespace().collect();
                    shown.extend(transports.iter().map(|&transport| transport.to_owned()));
                    Ok(chart::page(&self.results, &transports))
                }
                _ => bail!("there is no such directive"),
            });
            match replaced.with_context(|| format!("docs/src/{}", page.display())) {
                Ok(content) => chapter.content = content,
                Err(error) => failed = failed.take().or(Some(error)),
            }
        });
        match failed {
            Some(error) => Err(error),
            None => self.check_all_are_shown(&shown).map(|()| book),
        }
    }
}

/// Replaces each `{{#name arguments}}` of a page.
fn replace(page: &str, mut by: impl FnMut(&str, &str) -> Result<String>) -> Result<String> {
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("{{#") {
        let (directive, after) = after.split_once("}}").context("a `{{#` without its `}}`")?;
        let (name, arguments) = directive.split_once(' ').unwrap_or((directive, ""));
        out.push_str(before);
        out.push_str(&by(name, arguments.trim()).with_context(|| format!("{{{{#{directive}}}}}"))?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn show_code(root: &Path, arguments: &str) -> Result<String> {
    let (file, items) = arguments.split_once(':').context("it reads `FILE: ITEM, ITEM`")?;
    let source = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
    let items: Vec<_> = items.split(',').map(str::trim).collect();
    code::block(&source, &items)
}

fn show_proofs(proofs: &Proofs, arguments: &str) -> Result<String> {
    let names = arguments.split(',').map(str::trim);
    let shown: Vec<_> = names.map(|name| proofs.show(name)).collect::<Result<_>>()?;
    Ok(shown.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_is_replaced_and_the_text_around_it_stays() {
        let page = replace("a {{#x 1 2}} b {{#y}}", |name, arguments| {
            Ok(format!("[{name}:{arguments}]"))
        });
        assert_eq!(page.unwrap(), "a [x:1 2] b [y:]");
    }

    #[test]
    fn what_fails_is_named() {
        let error = replace("{{#x 1}}", |_, _| bail!("no")).unwrap_err();
        assert_eq!(format!("{error:#}"), "{{#x 1}}: no");
        assert!(replace("{{#x", |_, _| Ok(String::new())).is_err());
    }
}

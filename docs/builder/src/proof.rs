//! The tests behind the promises: where a test of a name stands.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// All tests of the workspace and all checks of the conformance suite, by name, each with the files that have one of that name.
pub(crate) struct Proofs(BTreeMap<String, Vec<String>>);

impl Proofs {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut proofs = Self(BTreeMap::new());
        for folder in ["crates", "examples"] {
            let path = root.join(folder);
            proofs.read_folder(&path, folder).with_context(|| folder.to_owned())?;
        }
        Ok(proofs)
    }

    fn read_folder(&mut self, path: &Path, name: &str) -> Result<()> {
        let mut entries: Vec<_> = std::fs::read_dir(path)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let file_name = entry.file_name();
            let file_name = file_name.to_string_lossy();
            let name = format!("{name}/{file_name}");
            if entry.file_type()?.is_dir() {
                if file_name != "target" {
                    self.read_folder(&entry.path(), &name)?;
                }
            } else if file_name.ends_with(".rs") {
                self.read_file(&std::fs::read_to_string(entry.path())?, &name);
            }
        }
        Ok(())
    }

    fn read_file(&mut self, source: &str, name: &str) {
        // The checks of the conformance suite are functions that every transport's tests call.
        let all = name.contains("/conformance/checks/");
        let mut is_test = false;
        for line in source.lines().map(str::trim) {
            if line.starts_with("#[") {
                is_test |= line.contains("test]") || line.contains("test(");
            } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| !line.starts_with("//")) {
                if is_test || all {
                    let end = rest
                        .find(|c: char| !c.is_alphanumeric() && c != '_')
                        .unwrap_or(rest.len());
                    self.0.entry(rest[..end].to_owned()).or_default().push(name.to_owned());
                }
                is_test = false;
            }
        }
    }

    /// The test `name`, with its file, as HTML that fits in a cell of a table.
    pub(crate) fn show(&self, name: &str) -> Result<String> {
        let files = self.0.get(name).with_context(|| format!("there is no test `{name}`"))?;
        // Long names and paths may break on a narrow screen.
        let breakable = |text: &str| text.replace('_', "_<wbr>").replace('/', "/<wbr>");
        let short = |file: &String| {
            let suite = file.find("conformance/checks/");
            suite.map_or_else(|| file.clone(), |at| file[at..].to_owned())
        };
        let files: Vec<_> = files.iter().map(short).collect();
        Ok(format!(
            "<span class=\"proof\"><code>{}</code> <small>{}</small></span>",
            breakable(name),
            breakable(&files.join(", "))
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_and_other_functions_are_not() {
        let mut proofs = Proofs(BTreeMap::new());
        let source = "fn helper() {}\n#[tokio::test(start_paused = true)]\nasync fn it_works() {}\n#[test]\n#[ignore]\nfn it_waits() {}\n";
        proofs.read_file(source, "crates/x/tests/a.rs");
        assert_eq!(proofs.0.keys().collect::<Vec<_>>(), ["it_waits", "it_works"]);
        assert!(proofs.show("it_works").unwrap().contains("it_<wbr>works"));
        let error = proofs.show("helper").unwrap_err().to_string();
        assert_eq!(error, "there is no test `helper`");
    }
}

//! Mistakes of authors, and what the compiler says of them.
//!
//! The texts are those of a build with the features that `cargo xtask test` switches on: without them the compiler has fewer
//! suggestions to make.
#![cfg(all(feature = "prost", feature = "garde", feature = "own-codec"))]

use std::fs;
use std::path::Path;

/// An error of more lines is scrolled past, not read.
const LONGEST: usize = 19;

#[test]
fn mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}

#[test]
fn each_error_is_short() {
    let texts = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui")).expect("the folder of the cases");
    let mut errors = 0;
    for path in texts.map(|entry| entry.expect("a case").path()) {
        if path.extension().is_none_or(|extension| extension != "stderr") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a text");
        for error in text.split("\n\nerror") {
            let lines = error.trim_end().lines().count();
            assert!(lines <= LONGEST, "{}: {lines} lines:\n{error}", path.display());
            errors += 1;
        }
    }
    assert!(errors >= 60, "{errors} errors are too few: were the cases found?");
}

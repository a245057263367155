//! Mistakes of authors, and what the compiler says of them.
//!
//! The texts are those of a build with the features that `cargo xtask test` switches on: without them the compiler has fewer
//! suggestions to make.
#![cfg(all(feature = "prost", feature = "garde", feature = "own-codec"))]

#[test]
fn mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}

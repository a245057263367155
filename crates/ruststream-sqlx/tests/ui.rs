//! Mistakes in the description of a table, and what the compiler says of them.

#[test]
fn mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

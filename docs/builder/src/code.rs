//! Items cut out of a Rust file: what a page shows is what is compiled.
//!
//! The cut trusts rustfmt: an item begins where its line does, and ends at the bracket that stands under its beginning.

use std::fmt::Write as _;

use anyhow::{Result, bail};

/// The items `names` of a file, in this order, with their comments and attributes, as a block of Markdown.
///
/// A name is that of a function, type, trait, macro or constant; `use` stands for all imports; `impl Filter` and `impl Layer for Filter`
/// for the block of that type, whatever its parameters.
pub(crate) fn block(source: &str, names: &[&str]) -> Result<String> {
    let lines: Vec<&str> = source.lines().collect();
    let mut shown = String::new();
    for name in names {
        if !shown.is_empty() {
            shown.push('\n');
        }
        let (first, last) = match *name {
            "use" => imports(&lines),
            name => item(&lines, name),
        }
        .ok_or_else(|| anyhow::anyhow!("it has no item `{name}`"))?;
        let indent = lines[last].len() - lines[last].trim_start().len();
        for line in &lines[first..=last] {
            let _ = writeln!(shown, "{}", line.get(indent..).unwrap_or_default());
        }
    }
    if shown.contains("```") {
        bail!("an item with a block of code in its comment cannot be shown");
    }
    Ok(format!("```rust\n{shown}```"))
}

/// The first and the last line of an item.
fn item(lines: &[&str], name: &str) -> Option<(usize, usize)> {
    let start = lines.iter().position(|line| begins(line.trim_start(), name))?;
    let indent = lines[start].len() - lines[start].trim_start().len();
    let belongs = |line: &&&str| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("#[")
    };
    let first = start - lines[..start].iter().rev().take_while(belongs).count();
    let ends = |line: &str| line.ends_with(';') || line.ends_with('}');
    let last = if ends(lines[start]) {
        start
    } else {
        let bracket = |line: &&str| {
            line.get(indent..)
                .is_some_and(|rest| rest.starts_with(['}', ')', ']']) && ends(rest))
        };
        start + 1 + lines[start + 1..].iter().position(bracket)?
    };
    Some((first, last))
}

/// True where a line begins the item `name`.
fn begins(line: &str, name: &str) -> bool {
    if let Some(block) = name.strip_prefix("impl ") {
        // Parameters and lifetimes are left out of the name: `impl Extract for Customer`.
        let mut parts = block.split(" for ");
        let all = line.starts_with("impl") && parts.all(|part| has_word(line, part));
        return all && line.contains(" for ") == block.contains(" for ");
    }
    let mut words = line.split(|c: char| !is_word(c)).filter(|word| !word.is_empty());
    let keyword = words.find(|word| !["pub", "crate", "super", "async", "unsafe", "default"].contains(word));
    let declares = [
        "fn",
        "struct",
        "enum",
        "trait",
        "type",
        "const",
        "static",
        "mod",
        "macro_rules",
    ];
    keyword.is_some_and(|keyword| declares.contains(&keyword)) && words.next() == Some(name)
}

fn imports(lines: &[&str]) -> Option<(usize, usize)> {
    let first = lines.iter().position(|line| line.starts_with("use "))?;
    let start = lines.iter().rposition(|line| line.starts_with("use "))?;
    let last = start + lines[start..].iter().position(|line| line.ends_with(';'))?;
    Some((first, last))
}

/// True where `part` stands in the line, and is not the part of a longer word.
fn has_word(line: &str, part: &str) -> bool {
    line.match_indices(part).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + part.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
use a::b;
use c::{
    d,
};

/// Sold.
#[derive(Debug)]
struct Sale {
    pieces: u64,
}

struct Unit;

impl Layer for Unit {
    async fn call(&self) {
        inner();
    }
}

/// Sells.
#[subscriber(\"sales\")]
async fn sell(
    sale: Sale,
) -> Result<(), String> {
    Ok(())
}
";

    #[test]
    fn an_item_comes_with_its_comment_and_its_attributes_to_its_last_bracket() {
        let shown = block(SOURCE, &["Sale", "Unit"]).unwrap();
        assert_eq!(
            shown,
            "```rust\n/// Sold.\n#[derive(Debug)]\nstruct Sale {\n    pieces: u64,\n}\n\nstruct Unit;\n```"
        );
        let shown = block(SOURCE, &["sell"]).unwrap();
        assert!(
            shown.starts_with("```rust\n/// Sells.\n#[subscriber") && shown.ends_with("    Ok(())\n}\n```"),
            "{shown}"
        );
    }

    #[test]
    fn a_block_of_an_impl_a_method_and_the_imports_can_be_shown() {
        let shown = block(SOURCE, &["impl Layer for Unit"]).unwrap();
        assert!(
            shown.starts_with("```rust\nimpl Layer") && shown.ends_with("\n}\n```"),
            "{shown}"
        );
        assert_eq!(
            block(SOURCE, &["call"]).unwrap(),
            "```rust\nasync fn call(&self) {\n    inner();\n}\n```"
        );
        assert_eq!(
            block(SOURCE, &["use"]).unwrap(),
            "```rust\nuse a::b;\nuse c::{\n    d,\n};\n```"
        );
    }

    #[test]
    fn a_block_is_named_without_its_parameters_and_by_whole_words() {
        let source = "impl Filters {\n}\n\nimpl<'a, S: Send> Layer<'a, S> for Filter<S> {\n}\n\nimpl Filter {\n}\n";
        let first = |name| block(source, &[name]).unwrap().lines().nth(1).unwrap().to_owned();
        assert_eq!(
            first("impl Layer for Filter"),
            "impl<'a, S: Send> Layer<'a, S> for Filter<S> {"
        );
        assert_eq!(first("impl Filter"), "impl Filter {");
    }

    #[test]
    fn what_is_not_there_is_an_error_that_names_it() {
        assert_eq!(block(SOURCE, &["buy"]).unwrap_err().to_string(), "it has no item `buy`");
        assert!(block(SOURCE, &["impl Layer for U"]).is_err());
    }
}

//! Rust source as a scan wants it: no comments, no strings, no tests, the lines still where they were.

/// The code of a file: comments and literals blanked out, the test module at its end cut off.
pub(crate) fn code(source: &str) -> String {
    let blanked = blank(source);
    let end = tests_start(&blanked).unwrap_or(blanked.len());
    blanked[..end].to_owned()
}

/// Where the test module starts: an unindented `#[cfg(test)]` above an inline `mod`.
fn tests_start(code: &str) -> Option<usize> {
    code.match_indices("#[cfg(test)]").map(|(at, _)| at).find(|&at| {
        let starts_line = at == 0 || code[..at].ends_with('\n');
        let item = code[at..].lines().skip(1).find(|line| !line.starts_with("#["));
        starts_line && item.is_some_and(|item| item.starts_with("mod ") && item.trim_end().ends_with('{'))
    })
}

/// Replaces comments and literals by blanks, line ends kept.
fn blank(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (skipped, blanked) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), true),
            '/' if rest.starts_with("/*") => (block_comment(rest), true),
            '"' => (string(rest), true),
            'r' if !out.ends_with(is_word) => raw_string(rest).map_or((1, false), |length| (length, true)),
            '\'' => char_literal(rest).map_or((1, false), |length| (length, true)),
            _ => (first.len_utf8(), false),
        };
        let (token, tail) = rest.split_at(skipped);
        if blanked {
            out.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        } else {
            out.push_str(token);
        }
        rest = tail;
    }
    out
}

/// True for what a name is made of.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].chars().take_while(|&c| c == '#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let opening = 2 + hashes;
    Some(body.find(&close).map_or(text.len(), |at| opening + at + close.len()))
}

/// The length of a character literal; `None` for the quote of a lifetime.
fn char_literal(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return chars.find(|&(_, c)| c == '\'').map(|(at, _)| at + 1);
    }
    chars.next().filter(|&(_, c)| c == '\'').map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        code(source).split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn comments_are_gone_and_lines_stay() {
        let source = "a // x\n/* b /* c */\n d */ e\n/// f\ng";
        assert_eq!(words(source), ["a", "e", "g"]);
        assert_eq!(code(source).lines().count(), source.lines().count());
    }

    #[test]
    fn literals_are_gone_and_lifetimes_stay() {
        assert_eq!(
            words(r##"a "b \" c" d r#"e " f"# g '"' h '\'' &'i j"##),
            ["a", "d", "g", "h", "&'i", "j"]
        );
    }

    #[test]
    fn the_test_module_is_cut_off() {
        assert_eq!(words("a\n#[cfg(test)]\n#[allow(b)]\nmod tests {\n    c\n}\n"), ["a"]);
    }

    #[test]
    fn what_is_only_declared_for_tests_cuts_nothing_off() {
        assert!(words("#[cfg(test)]\nmod tests;\na").contains(&"a".to_owned()));
    }
}

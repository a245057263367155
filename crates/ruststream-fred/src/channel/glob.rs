//! Patterns of channels, as Redis matches them, for tests without a server.
//!
//! `*` stands for any bytes, also none and also dots; `?` for one byte; `[abc]`, `[a-z]` and `[^a]` for one of a set; `\` takes what follows
//! as it is: <https://redis.io/docs/latest/commands/psubscribe/>.

/// Whether the name of a channel is matched.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut read) = (0, 0);
    // Where to go on when what follows the last `*` does not match: it stands for one byte more then.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, read));
            continue;
        }
        if at == pattern.len() && read == name.len() {
            return true;
        }
        let one = name.get(read).and_then(|byte| one(&pattern[at..], *byte));
        match (one, star) {
            (Some(length), _) => {
                at += length;
                read += 1;
            }
            (None, Some((behind, from))) if from < name.len() => {
                star = Some((behind, from + 1));
                (at, read) = (behind, from + 1);
            }
            (None, _) => return false,
        }
    }
}

/// The length of what stands first in the pattern, if it matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', set @ ..] => {
            let (is_not, set) = match set {
                [b'^', rest @ ..] => (true, rest),
                set => (false, set),
            };
            let (is_in, length) = in_set(set, byte);
            (is_in != is_not).then_some(1 + usize::from(is_not) + length)
        }
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Whether a byte is in a set, and the length of the set with its closing bracket. One that is not closed ends with the pattern.
fn in_set(set: &[u8], byte: u8) -> (bool, usize) {
    let mut is_in = false;
    let mut at = 0;
    loop {
        match &set[at..] {
            [] => return (is_in, at),
            [b']', ..] => return (is_in, at + 1),
            [b'\\', literal, ..] => {
                is_in |= *literal == byte;
                at += 2;
            }
            [first, b'-', last, ..] => {
                is_in |= (*first.min(last)..=*first.max(last)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_in |= *literal == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_redis_matches_them() {
        for (pattern, name, matched) in [
            ("news.*", "news.eu", true),
            ("news.*", "news.eu.paris", true),
            ("news.*", "news.", true),
            ("news.*", "news", false),
            ("news*", "newspaper", true),
            ("*", "", true),
            ("*.eu.*", "a.eu.b.eu.c", true),
            ("*a*b", "xaxxb", true),
            ("*a*b", "xaxxbc", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            (r"h\*llo", "h*llo", true),
            (r"h\*llo", "hello", false),
            ("[abc", "b", true),
            (r"a\", r"a\", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), matched, "{pattern} on {name}");
        }
    }
}

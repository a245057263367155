//! Passwords in what people read.

use std::borrow::Cow;

/// What stands in the place of a password.
const HIDDEN: &str = "…";
/// Names of parameters whose values are secrets.
const SECRETS: [&str; 4] = ["password=", "passwd=", "secret=", "token="];

/// The text without the passwords of the URLs in it: `postgres://shop:…@db/orders`. In doubt, more is hidden than need be.
fn without_secrets(text: &str) -> Cow<'_, str> {
    // One of these stands before each secret. A message that has neither is not searched further.
    if !text.bytes().any(|byte| matches!(byte, b':' | b'=')) {
        return Cow::Borrowed(text);
    }
    let mut hidden: Vec<(usize, usize)> = Vec::new();
    for (scheme, _) in text.match_indices("://") {
        let start = scheme + "://".len();
        let rest = &text[start..];
        let url = &rest[..rest
            .find(|end: char| end.is_whitespace() || "\"'`<>".contains(end))
            .unwrap_or(rest.len())];
        // A password may hold an `@` or a `/` that nobody escaped.
        if let Some(at) = url.rfind('@')
            && let Some(colon) = url[..at].find(':')
        {
            hidden.push((start + colon + 1, start + at));
        }
    }
    for name in SECRETS {
        for (found, _) in text.match_indices(name) {
            let start = found + name.len();
            let rest = &text[start..];
            let end = rest
                .find(|end: char| end.is_whitespace() || "&;\"'`<>".contains(end))
                .unwrap_or(rest.len());
            hidden.push((start, start + end));
        }
    }
    if hidden.is_empty() {
        return Cow::Borrowed(text);
    }
    hidden.sort_unstable();
    let mut shown = String::with_capacity(text.len());
    let mut end = 0;
    for (from, to) in hidden {
        if from >= end {
            shown.push_str(&text[end..from]);
            shown.push_str(HIDDEN);
        }
        end = end.max(to);
    }
    shown.push_str(&text[end..]);
    Cow::Owned(shown)
}

/// As [`without_secrets`], of a text that is no longer needed.
pub(crate) fn hide_secrets(text: String) -> String {
    match without_secrets(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(shown) => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_and_the_rest_is_shown() {
        for (text, shown) in [
            ("postgres://shop:secret@db/orders", "postgres://shop:…@db/orders"),
            (
                "cannot open \"amqp://a:se/cr@et@host:1/v\" twice",
                "cannot open \"amqp://a:…@host:1/v\" twice",
            ),
            ("redis://:secret@a redis://b:secret@c", "redis://:…@a redis://b:…@c"),
            (
                "mysql://db/orders?user=a&password=secret&b=c",
                "mysql://db/orders?user=a&password=…&b=c",
            ),
            ("host=db password=secret", "host=db password=…"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn what_holds_no_secret_is_lent() {
        for text in [
            "",
            "sqlite orders.db",
            "postgres://db:5432/orders",
            "a://b@c",
            "me@example.com: http://x.org/a:b",
        ] {
            assert!(
                matches!(without_secrets(text), Cow::Borrowed(lent) if lent == text),
                "{text}"
            );
        }
    }
}

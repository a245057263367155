//! The names that messages are published to.

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};

use crate::transport::{ErrorKind, TransportError};

/// A name to publish to: `"receipts"`, one that was put together, such as `format!("receipts.{region}")`, or a template that was
/// [filled](fill).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no name to publish to",
    label = "this is neither a `&'static str` nor a `String`",
    note = "the name comes first, the message after it and lent: `publish(\"receipts\", &receipt)`"
)]
pub trait Destination {
    /// The name.
    ///
    /// # Errors
    ///
    /// Where a template could not be filled; whoever publishes gets this error.
    fn into_name(self) -> Result<Cow<'static, str>, InvalidDestination>;
}

#[diagnostic::do_not_recommend]
impl Destination for &'static str {
    fn into_name(self) -> Result<Cow<'static, str>, InvalidDestination> {
        Ok(Cow::Borrowed(self))
    }
}

#[diagnostic::do_not_recommend]
impl Destination for String {
    fn into_name(self) -> Result<Cow<'static, str>, InvalidDestination> {
        Ok(Cow::Owned(self))
    }
}

#[diagnostic::do_not_recommend]
impl Destination for Cow<'static, str> {
    fn into_name(self) -> Result<Cow<'static, str>, InvalidDestination> {
        Ok(self)
    }
}

#[diagnostic::do_not_recommend]
impl Destination for Result<Cow<'static, str>, InvalidDestination> {
    fn into_name(self) -> Self {
        self
    }
}

/// Fills a template such as `orders.{region}`: a value in the place of each name in braces; `{{` and `}}` stand for braces.
///
/// A value becomes one level of the name and nothing else: it has letters, digits, `-` and `_` only, and at least one of them.
/// What cannot be filled may be passed on to where the message is published, which then fails. Where the values are fields of the
/// message, `#[derive(Message)]` checks the template when the service is compiled; see [`Addressed`](super::Addressed).
///
/// # Errors
///
/// Which value is missing or unsafe, and why.
///
/// # Examples
///
/// ```
/// use ruststream::publish::fill;
///
/// let orders = fill("orders.{region}.{shop}", &[("region", &"eu"), ("shop", &7)]);
/// assert_eq!(orders.unwrap(), "orders.eu.7");
///
/// let astray = fill("orders.{region}", &[("region", &"eu.#")]);
/// assert!(astray.unwrap_err().to_string().contains("'.' could lead the message elsewhere"));
/// ```
pub fn fill(template: &str, values: &[(&str, &dyn Display)]) -> Result<Cow<'static, str>, InvalidDestination> {
    filled(template, values).map(Cow::Owned)
}

/// Why a template could not be filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidDestination(Box<str>);

impl Display for InvalidDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidDestination {}

#[cold]
pub(crate) fn nowhere(error: InvalidDestination) -> TransportError {
    TransportError::new(ErrorKind::Invalid, error.to_string()).with_cause(error)
}

fn filled(template: &str, values: &[(&str, &dyn Display)]) -> Result<String, InvalidDestination> {
    let wrong = |text: String| InvalidDestination(format!("the destination {template:?}: {text}").into());
    let unclosed = || wrong("a brace stands alone; write `{{` or `}}` for one that is meant".to_owned());
    let mut name = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        name.push_str(&rest[..at]);
        let (brace, tail) = rest[at..].split_at(1);
        if let Some(tail) = tail.strip_prefix(brace) {
            name.push_str(brace);
            rest = tail;
            continue;
        }
        let (key, tail) = match tail.split_once('}') {
            Some(found) if brace == "{" => found,
            _ => return Err(unclosed()),
        };
        let Some((_, value)) = values.iter().find(|(known, _)| *known == key) else {
            let known: Vec<_> = values.iter().map(|(known, _)| format!("`{known}`")).collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(wrong(format!("`{{{key}}}` has no value; given: {known}")));
        };
        let from = name.len();
        let _ = write!(name, "{value}");
        check(&name[from..]).map_err(|problem| wrong(format!("the value of `{{{key}}}` {problem}")))?;
        rest = tail;
    }
    name.push_str(rest);
    Ok(name)
}

/// Whether a value is one level of a name, on every transport: separators and wildcards differ from one to the other.
fn check(value: &str) -> Result<(), String> {
    let unsafe_character = |c: &char| !(c.is_alphanumeric() || ['-', '_'].contains(c));
    match value.chars().find(unsafe_character) {
        Some(character) => {
            let start: String = value.chars().take(40).collect();
            Err(format!(
                "is {start:?}, and {character:?} could lead the message elsewhere; use letters, digits, `-` and `_`"
            ))
        }
        None if value.is_empty() => Err("is empty, which would lead the message elsewhere".to_owned()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fill(template: &str, value: &str) -> Result<String, String> {
        filled(template, &[("region", &value)]).map_err(|error| error.to_string())
    }

    proptest! {
        #[test]
        fn a_value_is_one_level_or_refused(value: String) {
            if let Ok(name) = fill("orders.{region}", &value) {
                prop_assert_eq!(name.split(['.', '/', ':']).count(), 2);
                let wildcards = name.contains(['*', '>', '#', '+', '$', ' ', '\0', '{', '}']);
                prop_assert!(!name.ends_with('.') && !wildcards);
            }
        }

        #[test]
        fn any_template_is_read_without_a_panic(template: String) {
            let _ = fill(&template, "eu");
        }
    }

    #[test]
    fn braces_are_filled_or_kept() {
        assert_eq!(fill("{region}", "eu-1"), Ok("eu-1".to_owned()));
        assert_eq!(fill("a.{region}.{region}.b", "ö_"), Ok("a.ö_.ö_.b".to_owned()));
        assert_eq!(fill("{{x}}.{region}", "eu"), Ok("{x}.eu".to_owned()));
        assert_eq!(fill("plain", ""), Ok("plain".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (template, value, word) in [
            ("orders.{region}", "", "`{region}` is empty"),
            ("orders.{region}", "a b", "' '"),
            ("orders.{place}", "eu", "`{place}` has no value; given: `region`"),
            ("orders.{region", "eu", "a brace stands alone"),
            ("orders.}", "eu", "a brace stands alone"),
            ("orders.{}", "eu", "`{}` has no value"),
        ] {
            let error = fill(template, value).unwrap_err();
            assert!(
                error.contains(word) && error.contains(&format!("{template:?}")),
                "{error}"
            );
        }
    }
}

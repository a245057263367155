//! Names of topics and filters: MQTT 5.0, sections 4.7 and 4.8.2.

use ruststream::transport::{ErrorKind, TransportError};

const SHARED: &str = "$share/";

/// Strings of MQTT are at most so long, in bytes: section 1.5.4.
pub(crate) const LONGEST: usize = 65_535;

fn invalid(what: &str, name: &str, why: &str) -> TransportError {
    let shown: String = name.chars().take(100).collect();
    TransportError::new(ErrorKind::Invalid, format!("{what} `{shown}` is wrong: {why}"))
}

/// Whether one can publish to it.
pub(crate) fn check_topic(what: &str, name: &str) -> Result<(), TransportError> {
    check_text(what, name)?;
    if name.contains(['+', '#']) {
        return Err(invalid(what, name, "`+` and `#` are wildcards, for subscriptions only"));
    }
    Ok(())
}

/// Whether one can subscribe to it; without the `$share/group/` before it.
pub(crate) fn check_filter(what: &str, name: &str) -> Result<(), TransportError> {
    check_text(what, name)?;
    let mut levels = name.split('/').peekable();
    while let Some(level) = levels.next() {
        if level.len() > 1 && level.contains(['+', '#']) {
            return Err(invalid(
                what,
                name,
                "a wildcard has to be a whole level, as in `orders/+/new`",
            ));
        }
        if level == "#" && levels.peek().is_some() {
            return Err(invalid(what, name, "`#` can only be the last level"));
        }
    }
    Ok(())
}

/// Whether it can be the name of a group of shared subscriptions.
pub(crate) fn check_group(name: &str) -> Result<(), TransportError> {
    check_text("the group", name)?;
    if name.contains(['/', '+', '#']) {
        return Err(invalid("the group", name, "`/`, `+` and `#` cannot be in it"));
    }
    Ok(())
}

fn check_text(what: &str, name: &str) -> Result<(), TransportError> {
    if name.is_empty() {
        return Err(invalid(what, name, "it is empty"));
    }
    if name.len() > LONGEST {
        return Err(invalid(what, name, "it is longer than 65,535 bytes"));
    }
    if name.contains('\0') {
        return Err(invalid(what, name, "it contains the character U+0000"));
    }
    Ok(())
}

/// `$share/group/filter` in its two parts; a filter of its own has no group.
pub(crate) fn split_group(name: &str) -> (Option<&str>, &str) {
    match name.strip_prefix(SHARED).and_then(|rest| rest.split_once('/')) {
        Some((group, filter)) => (Some(group), filter),
        None => (None, name),
    }
}

/// The name of a shared subscription on the wire.
pub(crate) fn join_group(group: &str, filter: &str) -> String {
    format!("{SHARED}{group}/{filter}")
}

/// Whether messages of `topic` are for `filter`.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    matched(filter, topic).is_some()
}

/// The levels of `topic` that stand for the wildcards of `filter`, in their order, the rest for `#` as one; `None` where it is not for it.
pub(crate) fn matched<'a>(filter: &str, topic: &'a str) -> Option<Vec<&'a str>> {
    // Topics of the server's own are not for wildcards: section 4.7.2.
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return None;
    }
    let mut found = Vec::new();
    let mut rest = Some(topic);
    for wanted in filter.split('/') {
        if wanted == "#" {
            found.push(rest.unwrap_or_default());
            return Some(found);
        }
        let text = rest?;
        let (level, behind) = match text.split_once('/') {
            Some((level, behind)) => (level, Some(behind)),
            None => (text, None),
        };
        if wanted == "+" {
            found.push(level);
        } else if wanted != level {
            return None;
        }
        rest = behind;
    }
    rest.is_none().then_some(found)
}

/// A topic for what was read by a filter with wildcards, which is none itself; one that the filter does not match, so that what is put
/// there does not come back. `None` where the filter is a topic.
///
/// `devices/+/state` has `dead/devices/_/state`; what would match everything has a topic that begins with `$`, which no wildcard matches.
pub(crate) fn place_beside(filter: &str) -> Option<String> {
    if !filter.contains(['+', '#']) {
        return None;
    }
    let place = format!("dead/{}", filter.replace(['+', '#'], "_"));
    Some(if matches(filter, &place) {
        format!("${place}")
    } else {
        place
    })
}

/// Whether there can be a topic that is for both filters.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('/'), other.split('/'));
    loop {
        match (one.next(), other.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some(left), Some(right)) if left == right || left == "+" || right == "+" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_the_specification_has_it() {
        for (filter, topic, expected) in [
            ("a/b", "a/b", Some(vec![])),
            ("a/b", "a/b/c", None),
            ("a/b/c", "a/b", None),
            ("a/+", "a/b", Some(vec!["b"])),
            ("a/+", "a", None),
            ("a/+", "a/", Some(vec![""])),
            ("+/+", "/finance", Some(vec!["", "finance"])),
            ("a/#", "a", Some(vec![""])),
            ("a/#", "a/b/c", Some(vec!["b/c"])),
            ("#", "a/b", Some(vec!["a/b"])),
            ("#", "$SYS/x", None),
            ("+/x", "$SYS/x", None),
            ("$SYS/#", "$SYS/x", Some(vec!["x"])),
            ("+", "ü/x", None),
            ("+/x", "ü/x", Some(vec!["ü"])),
        ] {
            assert_eq!(matched(filter, topic), expected, "{filter} {topic}");
        }
    }

    #[test]
    fn filters_overlap_where_a_topic_is_for_both() {
        for (one, other, expected) in [
            ("a/+", "a/b", true),
            ("a/+/c", "+/b/+", true),
            ("a/#", "a", true),
            ("#", "x/y", true),
            ("a/+", "a", false),
            ("a/b", "a/c", false),
            ("a/+/c", "a/b", false),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
            assert_eq!(overlap(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn dead_letters_of_a_filter_do_not_come_back_to_it() {
        assert_eq!(place_beside("a/b"), None);
        for (filter, place) in [
            ("a/+/b", "dead/a/_/b"),
            ("a/#", "dead/a/_"),
            ("#", "$dead/_"),
            ("+/#", "$dead/_/_"),
            ("dead/#", "$dead/dead/_"),
        ] {
            assert_eq!(place_beside(filter).as_deref(), Some(place));
            assert!(!matches(filter, place), "{filter}");
        }
    }

    #[test]
    fn wrong_names_are_told() {
        for filter in ["", "a#", "#/a", "a/b+", "\0"] {
            assert!(check_filter("the filter", filter).is_err(), "{filter:?}");
        }
        for filter in ["#", "+", "a/+/b/#", "/"] {
            assert!(check_filter("the filter", filter).is_ok(), "{filter:?}");
        }
        assert!(check_topic("the topic", "a/+").is_err());
        assert_eq!(split_group("$share/g/a/b"), (Some("g"), "a/b"));
        assert_eq!(split_group("a/b"), (None, "a/b"));
    }
}

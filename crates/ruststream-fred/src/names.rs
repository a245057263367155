//! Names of streams and groups, and of the keys that the crate keeps beside them.
//!
//! All keys of one stream lie in one slot of a cluster, so that one script can work on them: they bear the stream's own name, or
//! the part of it in braces, as their hash tag; see <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>.

use ruststream::transport::{ErrorKind, TransportError};

/// The longest name of a stream or group, in bytes.
const LONGEST_NAME: usize = 512;

/// The slot of a key.
pub(crate) fn slot_of(key: &str) -> u16 {
    fred::util::redis_keyslot(key.as_bytes())
}

/// What stands between the first opening brace and the first closing one behind it, if there is something.
fn tag_of(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The key of the crate's own called `what`, in the slot of `name`.
pub(crate) fn beside(name: &str, what: &str) -> String {
    if tag_of(name).is_some() {
        format!("{name}:ruststream:{what}")
    } else {
        format!("{{{name}}}:ruststream:{what}")
    }
}

/// Where dead letters of `name` go. On a cluster the name bears a tag, so that a letter can be moved there at once.
pub(crate) fn dead_of(name: &str, is_cluster: bool) -> String {
    if is_cluster && tag_of(name).is_none() {
        format!("{{{name}}}.dead")
    } else {
        format!("{name}.dead")
    }
}

/// Says what is wrong with the name of a stream, a list or a channel.
pub(crate) fn check_name(name: &str) -> Result<(), TransportError> {
    check("key", name)?;
    if name.contains('}') && tag_of(name).is_none() {
        return Err(TransportError::new(
            ErrorKind::Invalid,
            format!(
                "the name {name:?} has a closing brace and no hash tag: the keys beside it could not be kept with it in a cluster; \
                 leave the brace out, or write a tag such as {{orders}}"
            ),
        ));
    }
    Ok(())
}

/// Says what is wrong with the name of a group.
pub(crate) fn check_group(name: &str) -> Result<(), TransportError> {
    check("consumer group", name)
}

fn check(what: &str, name: &str) -> Result<(), TransportError> {
    let text = if name.is_empty() {
        format!("the name of the {what} is empty: give it one of 1 to {LONGEST_NAME} bytes")
    } else if name.len() > LONGEST_NAME {
        let start: String = name.chars().take(20).collect();
        format!(
            "the name of the {what} {start:?}... has {} bytes: give it one of at most {LONGEST_NAME}",
            name.len()
        )
    } else {
        return Ok(());
    };
    Err(TransportError::new(ErrorKind::Invalid, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_name_lie_in_its_slot() {
        for name in ["orders", "{shop}orders", "shop:{7}:orders", "a{b", "ör ders"] {
            assert!(check_name(name).is_ok(), "{name}");
            assert_eq!(slot_of(name), slot_of(&beside(name, "due")), "{name}");
            assert_eq!(slot_of(name), slot_of(&dead_of(name, true)), "{name}");
        }
        assert_eq!(dead_of("orders", false), "orders.dead");
        assert_eq!(dead_of("orders", true), "{orders}.dead");
    }

    #[test]
    fn names_that_no_tag_can_hold_are_refused() {
        for name in ["", "a}b", "a}b{c", "{}a", &"x".repeat(600)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}

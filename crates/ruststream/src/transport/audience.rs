//! Who gets what a source reads, beside the subscription itself.

use std::fmt;
use std::sync::Arc;

/// Who gets what a source reads, beside the subscription itself: what a [`TestApp`](crate::testing::TestApp) routes by, which has no server.
///
/// # Examples
///
/// ```
/// use ruststream::transport::Audience;
///
/// /// `news.` and anything.
/// fn begins_so(pattern: &str, name: &str) -> bool {
///     name.starts_with(pattern.trim_end_matches('*'))
/// }
///
/// let work_queue = Audience::shared();
/// let consumer_group = Audience::group("billing");
/// let listeners = Audience::each().by_pattern(begins_so);
/// # let _ = (work_queue, consumer_group, listeners);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Audience {
    pub(crate) share: Share,
    pub(crate) matches: Option<Matches>,
}

/// Who shares messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Share {
    /// Subscriptions of one name and group; the group of those that are of none is the empty one.
    Group(Arc<str>),
    /// No one: each subscription has its own copy.
    Each,
}

/// Whether a name is matched by the pattern that a subscription reads.
#[derive(Clone, Copy)]
pub(crate) struct Matches(pub(crate) fn(&str, &str) -> bool);

impl Audience {
    /// All subscriptions of one name share its messages: each goes to one of them.
    pub fn shared() -> Self {
        Self::group("")
    }

    /// Subscriptions of one name and group share its messages; each group gets every message.
    pub fn group(name: impl Into<Arc<str>>) -> Self {
        Self {
            share: Share::Group(name.into()),
            matches: None,
        }
    }

    /// Each subscription gets every message.
    pub fn each() -> Self {
        Self {
            share: Share::Each,
            matches: None,
        }
    }

    /// The name of the source is a pattern. The function says whether it, its first argument, matches the name that a message was
    /// published to, its second.
    pub fn by_pattern(self, matches: fn(&str, &str) -> bool) -> Self {
        Self {
            matches: Some(Matches(matches)),
            ..self
        }
    }
}

impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audience")
            .field("share", &self.share)
            .field("by_pattern", &self.matches.is_some())
            .finish()
    }
}

impl fmt::Debug for Matches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Matches")
    }
}

/// Two patterns are read alike where they are read by the same text: the functions of one transport are one.
impl PartialEq for Matches {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Matches {}

//! What a transport lets its users say of one publish, beside what all transports have.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What a transport lets its users say of one publish, beside headers, key and delay: a priority, how safely it is stored.
///
/// The crate of a transport has one such type, a plain struct that begins with its defaults, and implements this trait for it.
/// Users set it by [`Publishing::options`](crate::publish::Publishing::options); the transport asks for it by
/// [`Outgoing::options`](super::Outgoing::options). A transport leaves alone the options of others: so a service runs unchanged
/// where another broker stands in for its own, as in a test.
///
/// # Examples
///
/// ```
/// use ruststream::message::{Outgoing, TransportOptions};
///
/// #[derive(Debug, Clone, PartialEq, Eq, Default)]
/// pub struct ParcelOptions {
///     priority: u8,
/// }
///
/// impl ParcelOptions {
///     /// Sets how urgent the message is: 0, where nothing is set, to 9.
///     pub fn priority(mut self, priority: u8) -> Self {
///         self.priority = priority;
///         self
///     }
/// }
///
/// impl TransportOptions for ParcelOptions {}
///
/// // The user:
/// # async fn example(publisher: ruststream::publish::Publisher) -> Result<(), ruststream::transport::PublishError> {
/// publisher.publish("orders", &7u64).options(ParcelOptions::default().priority(9)).await?;
/// # Ok(()) }
///
/// // The transport:
/// fn priority(message: &Outgoing<'_>) -> u8 {
///     message.options::<ParcelOptions>().map_or(0, |options| options.priority)
/// }
/// # let mut set = ruststream::message::OptionSet::new();
/// # set.insert(ParcelOptions::default().priority(9));
/// # assert_eq!(priority(&Outgoing::new("orders", b"7").with_options(&set)), 9);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no options of a transport",
    label = "`TransportOptions` is not implemented for this type",
    note = "the crate of each transport has a type for what it adds to a publish; what all transports have is set by `header`, \
            `key` and `delay`"
)]
pub trait TransportOptions: Any + fmt::Debug + Eq + Send + Sync {}

/// The options of transports that are set on one message, at most one of each type. An empty set allocates nothing.
#[derive(Default, Clone, PartialEq, Eq)]
pub struct OptionSet {
    /// Mostly none, seldom more than one.
    options: Vec<Shared>,
}

impl OptionSet {
    /// An empty set.
    pub const fn new() -> Self {
        Self { options: Vec::new() }
    }

    /// Puts options in, in the place of those of the same type.
    pub fn insert<O: TransportOptions>(&mut self, options: O) {
        self.options.retain(|known| !known.any().is::<O>());
        self.options.push(Shared(Arc::new(options)));
    }

    /// The options of this type.
    pub fn get<O: TransportOptions>(&self) -> Option<&O> {
        self.options.iter().find_map(|known| known.any().downcast_ref())
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.options.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.options.clear();
    }
}

impl fmt::Debug for OptionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.options.iter().map(|one| &one.0)).finish()
    }
}

/// One type of options, behind `dyn`. Shared, so that a message can be cloned.
#[derive(Clone)]
struct Shared(Arc<dyn Erased>);

impl Shared {
    fn any(&self) -> &dyn Any {
        &*self.0
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(other.any())
    }
}

impl Eq for Shared {}

trait Erased: Any + fmt::Debug + Send + Sync {
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<O: TransportOptions> Erased for O {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

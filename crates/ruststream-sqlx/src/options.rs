//! What a queue in a table adds to a publish.

use std::time::SystemTime;

use ruststream::message::TransportOptions;

use crate::clock::to_millis;
use crate::operation::Extras;

/// The longest unique key, in bytes.
pub(crate) const LONGEST_UNIQUE_KEY: usize = 200;

/// What a message can have beside payload, headers, key and delay, in a queue of this crate.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use ruststream::prelude::*;
/// use ruststream_sqlx::InboxOptions;
///
/// async fn remind(publisher: &Publisher, order: u64) -> Result<(), PublishError> {
///     let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
///     let options = InboxOptions::new().run_at(tomorrow).unique(format!("reminder-{order}"));
///     publisher.publish("reminders", &order).options(options).await
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxOptions {
    pub(crate) extras: Extras,
}

impl InboxOptions {
    /// No options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts it before messages of a lower priority, for subscriptions that go by [priority](crate::Inbox::priority). Messages
    /// have the priority 0 unless set; the highest is 32767.
    #[must_use]
    pub fn priority(mut self, priority: u16) -> Self {
        self.extras.priority = priority.min(i16::MAX.cast_unsigned());
        self
    }

    /// Lets it be handed out at this time, by the clock of the database: at once if that is past. To a millisecond; excludes a
    /// delay. With the features `chrono` and `time` the times of those crates will do.
    #[must_use]
    pub fn run_at(mut self, time: impl Into<SystemTime>) -> Self {
        self.extras.run_at = Some(to_millis(time.into()));
        self
    }

    /// Stores it only if its queue has no message with this key: of 1 to 200 bytes. A message is there until it is acked, as long as it is
    /// [kept](crate::Inbox::keep) afterwards, and as a dead letter. To publish another then is no error; who wants to know asks
    /// [`SqlxPublisher::store`](crate::SqlxPublisher::store).
    #[must_use]
    pub fn unique(mut self, key: impl Into<String>) -> Self {
        self.extras.unique = Some(key.into());
        self
    }
}

impl TransportOptions for InboxOptions {}

//! What a transport does itself.

use std::time::Duration;

/// What a transport does itself for a source. The runtime supplies what is missing.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::transport::Capabilities;
///
/// let table = Capabilities::none().with_lease(Duration::from_secs(30)).with_delay().with_dead_letters();
/// assert!(table.delay());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    lease: Option<Duration>,
    delay: bool,
    dead_letters: bool,
    attempts: bool,
}

impl Capabilities {
    /// Nothing but fetch and settle.
    pub const fn none() -> Self {
        Self {
            lease: None,
            delay: false,
            dead_letters: false,
            attempts: false,
        }
    }

    /// Deliveries are leased for this long, and [`Settle::renew`](super::Settle::renew) extends all of them.
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// `Verdict::Retry { after }`, a delay on a published message and `Release` are kept by the broker, through a crash.
    /// Without it, the runtime keeps the delivery unsettled in hand until its time.
    #[must_use]
    pub const fn with_delay(mut self) -> Self {
        self.delay = true;
        self
    }

    /// `Verdict::DeadLetter` stores the message where people find it. Without it, the runtime publishes a copy to
    /// `<name>.dead` and acks the original once the copy is confirmed.
    #[must_use]
    pub const fn with_dead_letters(mut self) -> Self {
        self.dead_letters = true;
        self
    }

    /// Attempts are counted by the broker when it delivers, so that a message which kills its process is counted too.
    #[must_use]
    pub const fn with_attempts(mut self) -> Self {
        self.attempts = true;
        self
    }

    /// How long a delivery is leased, if it is.
    pub const fn lease(&self) -> Option<Duration> {
        self.lease
    }

    /// Whether delays are kept by the broker.
    pub const fn delay(&self) -> bool {
        self.delay
    }

    /// Whether the broker has a place for dead letters.
    pub const fn dead_letters(&self) -> bool {
        self.dead_letters
    }

    /// Whether attempts are counted by the broker.
    pub const fn attempts(&self) -> bool {
        self.attempts
    }
}

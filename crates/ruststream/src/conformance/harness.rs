//! What the suite needs to know of a transport.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::transport::{Broker, TransportError};

/// Gives the suite brokers to check. One is started for each check.
pub trait Harness: Sized {
    /// The broker under check.
    type Broker: Broker;

    /// Makes what one check needs: a database, a container, or nothing where names are enough to keep checks apart.
    fn start() -> impl Future<Output = Self>;

    /// A broker on the server of this harness. Each call stands for another process.
    fn broker(&self) -> Self::Broker;

    /// What the server does and does not do, beyond what the source declares.
    fn features(&self) -> Features {
        Features::default()
    }

    /// A name that no check used before on this server.
    fn name(&self) -> String {
        unique_name()
    }

    /// A source on `name` whose leases are this short; `None` where the transport has no leases or they cannot be set.
    fn leased_source(&self, name: &str, lease: Duration) -> Option<<Self::Broker as Broker>::Source> {
        let _ = (name, lease);
        None
    }

    /// The payloads of the dead letters that the transport itself keeps for `name`; `None` where the test cannot read them.
    ///
    /// # Errors
    ///
    /// Where reading fails; the check fails with it.
    fn dead_letters(&self, name: &str) -> impl Future<Output = Result<Option<Vec<Vec<u8>>>, TransportError>> {
        let _ = name;
        async { Ok(None) }
    }

    /// Cuts the links between all brokers and the server, such as by a restart of the server; false where it cannot.
    fn cut(&self) -> impl Future<Output = bool> {
        async { false }
    }

    /// How long a check waits for what is to happen.
    fn deadline(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// How long a check watches for what is not to happen.
    fn quiet(&self) -> Duration {
        Duration::from_millis(300)
    }
}

/// What a server does and does not do. By default it does everything; what is switched off is not checked.
#[derive(Debug, Clone, Copy)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each stands for itself; no two make a state"
)]
pub struct Features {
    pub(super) shares: bool,
    pub(super) stores: bool,
    pub(super) redelivers: bool,
    pub(super) returns: bool,
    pub(super) orders: bool,
    pub(super) places: bool,
    pub(super) headers: bool,
    pub(super) header_bytes: bool,
    pub(super) keys: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            shares: true,
            stores: true,
            redelivers: true,
            returns: true,
            orders: true,
            places: true,
            headers: true,
            header_bytes: true,
            keys: true,
        }
    }
}

impl Features {
    /// Subscriptions on one name each get every message.
    #[must_use]
    pub fn without_sharing(mut self) -> Self {
        self.shares = false;
        self
    }

    /// What is published while no one subscribes is lost: a channel.
    #[must_use]
    pub fn without_storage(mut self) -> Self {
        self.stores = false;
        self.without_redelivery()
    }

    /// What a subscription leaves unsettled is not delivered to the next: a plain topic.
    #[must_use]
    pub fn without_redelivery(mut self) -> Self {
        self.redelivers = false;
        self
    }

    /// A delivery cannot be given back while its subscription lives: the server has no retry and no release.
    #[must_use]
    pub fn without_returns(mut self) -> Self {
        self.returns = false;
        self
    }

    /// A queue has no order.
    #[must_use]
    pub fn without_order(mut self) -> Self {
        self.orders = false;
        self.without_places()
    }

    /// What is released comes again behind what waits, not before it.
    #[must_use]
    pub fn without_places(mut self) -> Self {
        self.places = false;
        self
    }

    /// Messages carry no headers.
    #[must_use]
    pub fn without_headers(mut self) -> Self {
        self.headers = false;
        self.without_header_bytes()
    }

    /// Header values are text.
    #[must_use]
    pub fn without_header_bytes(mut self) -> Self {
        self.header_bytes = false;
        self
    }

    /// Messages carry no key.
    #[must_use]
    pub fn without_keys(mut self) -> Self {
        self.keys = false;
        self
    }
}

/// A name that no process used before: letters, digits and `-`.
pub fn unique_name() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let process = std::process::id();
    format!("check-{:x}-{process:x}-{number}", since.as_micros())
}

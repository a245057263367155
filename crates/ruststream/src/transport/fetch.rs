//! The half of a subscription that takes deliveries.

use super::{Delivery, TransportError};

/// Takes deliveries from the transport.
pub trait Fetch: Send + 'static {
    /// What it takes.
    type Delivery: Delivery;

    /// Waits until something is there, then appends at least one and at most `room` deliveries to `into`.
    ///
    /// `room` is never zero. Many a call is the point: a transport that can bring `room` messages in one round trip does.
    ///
    /// # Errors
    ///
    /// After a [transient](TransportError::is_transient) error the caller backs off and calls again; what was appended before
    /// the error counts as delivered. A permanent one ends the subscription.
    ///
    /// # Cancel safety
    ///
    /// A call dropped before it completes loses no delivery: what it took is handed out by the next call, or given back by
    /// [`close`](Self::close).
    fn fetch(
        &mut self,
        room: usize,
        into: &mut Vec<Self::Delivery>,
    ) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Sets up again what a transient error broke: reconnects, makes again what the server forgot. Called after such an error,
    /// with backoff, until it succeeds; the subscription counts as unhealthy meanwhile. A transport whose `fetch` does all
    /// that itself needs none.
    ///
    /// # Errors
    ///
    /// As [`fetch`](Self::fetch).
    fn recover(&mut self) -> impl Future<Output = Result<(), TransportError>> + Send {
        async { Ok(()) }
    }

    /// Ends the half: stops the broker from sending more, and gives back at once, with the attempt uncounted, what was taken
    /// and not handed out. Deliveries already handed out can still be settled.
    ///
    /// # Errors
    ///
    /// Where the broker does not answer; what was not given back is delivered again when its lease or connection ends.
    fn close(self) -> impl Future<Output = Result<(), TransportError>> + Send
    where
        Self: Sized,
    {
        async { Ok(()) }
    }
}

//! The half of a subscription that gives receipts back.

use super::{TransportError, Verdict};

/// Gives receipts back to the transport.
pub trait Settle: Send + 'static {
    /// What a [`Delivery`](super::Delivery) ends as.
    type Receipt: Send + 'static;

    /// Settles all that finished since the last call, in as few round trips as the transport allows.
    ///
    /// Takes out of `finished` what is done: on success it is left empty. A receipt of a lost connection or a lost lease is
    /// taken out too, counted in [`Settled::stale`], and settles nothing.
    ///
    /// # Errors
    ///
    /// What is still in `finished` was not settled and can be given again: the caller backs off and does so. After a permanent
    /// error the caller gives up what is left, which the broker then delivers again.
    fn settle(
        &mut self,
        finished: &mut Vec<(Self::Receipt, Verdict)>,
    ) -> impl Future<Output = Result<Settled, TransportError>> + Send;

    /// Renews the leases of everything fetched and not yet settled, in one statement. Called at a third of the lease, only
    /// where [`Capabilities::lease`](super::Capabilities::lease) is set.
    ///
    /// Appends to `lost` the [`lease_id`](super::Delivery::lease_id) of each delivery whose lease is gone.
    ///
    /// # Errors
    ///
    /// Where the broker does not answer; the caller tries again soon, while the leases run on.
    fn renew(&mut self, lost: &mut Vec<u64>) -> impl Future<Output = Result<(), TransportError>> + Send {
        let _ = lost;
        async { Ok(()) }
    }

    /// Ends the half, after its last `settle`.
    ///
    /// # Errors
    ///
    /// Where the broker does not answer in time.
    fn close(self) -> impl Future<Output = Result<(), TransportError>> + Send
    where
        Self: Sized,
    {
        async { Ok(()) }
    }
}

/// What became of a group of receipts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Receipts that came too late: their lease or connection was lost, and the message belongs to another delivery.
    pub stale: usize,
}

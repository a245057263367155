//! The half of a subscription that gives receipts back.

use std::fmt;
use std::sync::Arc;

use ruststream::transport::{Settle, Settled, TransportError, Verdict};

use crate::delivery::MqttReceipt;
use crate::fetch::Subscription;

/// Settles messages. MQTT has only one word for it, *acknowledged*: what is given back stays unacknowledged on the server, and is handed
/// out again by this process, or comes again when the link is made anew.
pub struct MqttSettle {
    subscription: Arc<Subscription>,
}

impl MqttSettle {
    pub(crate) fn new(subscription: Arc<Subscription>) -> Self {
        Self { subscription }
    }
}

impl Settle for MqttSettle {
    type Receipt = MqttReceipt;

    async fn settle(&mut self, finished: &mut Vec<(MqttReceipt, Verdict)>) -> Result<Settled, TransportError> {
        let mut settled = Settled::default();
        let is_due = {
            let mut state = self.subscription.shared.state();
            let epoch = state.epoch;
            for (receipt, verdict) in finished.drain(..) {
                let waits = receipt.message.fields().packet_id() != 0;
                if waits && receipt.epoch != epoch {
                    settled.stale += 1;
                    continue;
                }
                let attempt = match verdict {
                    Verdict::Release => receipt.attempt,
                    Verdict::Retry { .. } => receipt.attempt + 1,
                    Verdict::Return { attempts } => attempts + 1,
                    _ => {
                        if waits {
                            state.inbound.ack(&receipt);
                        }
                        continue;
                    }
                };
                state.inbound.give_back(self.subscription.filter, receipt, attempt);
            }
            !state.inbound.acks.is_empty()
        };
        if is_due {
            self.subscription.shared.work.notify_one();
        }
        Ok(settled)
    }
}

impl fmt::Debug for MqttSettle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttSettle")
            .field("filter", &self.subscription.name)
            .finish_non_exhaustive()
    }
}

//! The half of a subscription that takes messages.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::{ErrorKind, Fetch, TransportError};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::delivery::MqttDelivery;
use crate::filters::Standing;
use crate::shared::Shared;

/// Dropped messages are told of at most this often.
const TELL: Duration = Duration::from_secs(1);

/// What both halves know; its end is the subscription's.
pub(crate) struct Subscription {
    pub(crate) shared: Arc<Shared>,
    pub(crate) filter: u32,
    pub(crate) number: u32,
    pub(crate) notify: Arc<Notify>,
    pub(crate) name: String,
}

impl Subscription {
    /// Ends what comes in. A session that lasts keeps the filter, so that messages wait for the next process.
    fn leave(&self) {
        let mut state = self.shared.state();
        state.inbound.leave(self.number);
        if !self.shared.settings.is_lasting() {
            state.inbound.filters.drop_unread(self.filter);
        }
        drop(state);
        self.shared.work.notify_one();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.state().inbound.forget(self.filter, self.number);
        self.leave();
    }
}

/// Takes messages from a filter of topics.
pub struct MqttFetch {
    subscription: Arc<Subscription>,
    epoch: u32,
    lost: bool,
    untold: u64,
    told: Option<Instant>,
}

impl MqttFetch {
    pub(crate) fn new(subscription: Arc<Subscription>, epoch: u32) -> Self {
        Self {
            subscription,
            epoch,
            lost: false,
            untold: 0,
            told: None,
        }
    }

    /// Takes what is there; an error where nothing can come any more.
    fn take(&mut self, room: usize, into: &mut Vec<MqttDelivery>) -> Result<(), TransportError> {
        let before = into.len();
        let subscription = &self.subscription;
        let (epoch, is_up, dropped, lost, standing) = {
            let mut state = subscription.shared.state();
            let epoch = state.epoch;
            let dropped = state.inbound.take(subscription.number, epoch, room, into);
            let is_lost = epoch != self.epoch || !state.up;
            let lost = is_lost.then(|| state.lost.clone().unwrap_or_default());
            (epoch, state.up, dropped, lost, state.standing(subscription.filter))
        };
        if dropped > 0 {
            self.tell_of_dropped(dropped);
        }
        if into.len() > before {
            if is_up {
                // What comes shows that the link is there again, whether or not its loss was told.
                self.epoch = epoch;
            }
            return Ok(());
        }
        if let Some(why) = lost {
            self.lost = true;
            let text = format!("the link that brought `{}` was lost: {why}", self.subscription.name);
            return Err(TransportError::new(ErrorKind::Unavailable, text));
        }
        match standing {
            Standing::Failed(failure) => Err(failure.into()),
            Standing::Made | Standing::Pending => Ok(()),
        }
    }

    fn tell_of_dropped(&mut self, dropped: u64) {
        self.untold += dropped;
        let now = Instant::now();
        if self.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL) {
            tracing::warn!(
                filter = %self.subscription.name, dropped = self.untold,
                "the consumer is slower than what comes at QoS 0: the oldest messages were dropped; add workers, raise \
                 `.receive_maximum(..)` or use QoS 1"
            );
            self.untold = 0;
            self.told = Some(now);
        }
    }
}

impl Fetch for MqttFetch {
    type Delivery = MqttDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<MqttDelivery>) -> Result<(), TransportError> {
        if self.lost {
            self.recover().await?;
        }
        let before = into.len();
        loop {
            self.take(room.max(1), into)?;
            if into.len() > before {
                return Ok(());
            }
            self.subscription.notify.notified().await;
        }
    }

    async fn recover(&mut self) -> Result<(), TransportError> {
        let subscription = self.subscription.clone();
        subscription.shared.up().await?;
        let what = format!("the subscription `{}`", subscription.name);
        let made = subscription.shared.wait_for(&what, |state, _| {
            if !state.up {
                return None;
            }
            match state.standing(subscription.filter) {
                Standing::Made => Some(Ok(state.epoch)),
                Standing::Failed(failure) => Some(Err(failure.into())),
                Standing::Pending => None,
            }
        });
        self.epoch = made.await?;
        self.lost = false;
        Ok(())
    }

    async fn close(self) -> Result<(), TransportError> {
        // What was taken and not handed out waits for the next subscription; the end of the value says so.
        Ok(())
    }
}

impl Drop for MqttFetch {
    fn drop(&mut self) {
        self.subscription.leave();
    }
}

impl fmt::Debug for MqttFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttFetch")
            .field("filter", &self.subscription.name)
            .finish_non_exhaustive()
    }
}

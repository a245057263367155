//! Several messages in one transaction of the server: all are stored, or none.

use std::collections::BTreeSet;
use std::sync::Arc;

use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, ExchangeKind};
use ruststream::transport::TransportError;
use tokio::time::{Instant, timeout_at};

use crate::error;
use crate::link::Live;
use crate::outbox::{Letter, Outbox, unroutable};

/// A channel in the mode of transactions, with none begun.
pub(crate) struct TransactionChannel {
    channel: Channel,
    live: Arc<Live>,
}

impl Outbox {
    /// Sends letters in one transaction. Those that reach no queue are told by their place, and the others are stored then; any
    /// other failure is that of all.
    pub(crate) async fn send_together(&self, letters: &[Letter<'_>]) -> Vec<(usize, TransportError)> {
        if letters.is_empty() {
            return Vec::new();
        }
        let deadline = Instant::now() + self.settings.publish_timeout;
        match self.commit(letters, deadline).await {
            Ok(unroutable) => unroutable,
            Err(error) => (0..letters.len()).map(|place| (place, error::again(&error))).collect(),
        }
    }

    async fn commit(
        &self,
        letters: &[Letter<'_>],
        deadline: Instant,
    ) -> Result<Vec<(usize, TransportError)>, TransportError> {
        let what = format!("a transaction of {} messages on {}", letters.len(), self.settings.label);
        let late = || error::late(&what, self.settings.publish_timeout);
        let _permit = self.permit(deadline).await?;
        let opening = async {
            let idle = std::iter::from_fn(|| self.transactions().pop()).find(TransactionChannel::stands);
            match idle {
                Some(channel) => Ok(channel),
                None => self.begin().await,
            }
        };
        let channel = timeout_at(deadline, opening).await.map_err(|_| late())??;
        let committing = async {
            for letter in letters {
                let options = BasicPublishOptions {
                    mandatory: letter.mandatory,
                    ..BasicPublishOptions::default()
                };
                let (exchange, key) = ((*letter.exchange).into(), (*letter.routing_key).into());
                let publishing =
                    channel
                        .channel
                        .basic_publish(exchange, key, options, letter.payload, letter.properties.clone());
                publishing.await?;
            }
            channel.channel.tx_commit().await?;
            // What it gave back came before its answer.
            channel.channel.wait_for_confirms().await
        };
        // Dropped before it is committed, the channel takes all of it back.
        let Ok(returned) = timeout_at(deadline, committing).await else {
            if channel.live.blocked().is_none() {
                self.publishing.discard(&channel.live);
            }
            return Err(late());
        };
        let returned = match returned {
            Ok(returned) => returned,
            Err(error) => {
                // A publish finds the channel closed by what came before it, and is not told why.
                let untold = !error.is_amqp_error() && channel.live.stands();
                let missing = if untold {
                    self.missing_exchange(letters, &channel.live).await
                } else {
                    None
                };
                return Err(missing.unwrap_or_else(|| error::from_lapin(error, &what)));
            }
        };
        let mut failures: Vec<(usize, TransportError)> = Vec::new();
        for returned in returned {
            let known = |place: &usize| failures.iter().any(|(failed, _)| failed == place);
            let place = (0..letters.len()).find(|place| letters[*place].is(&returned) && !known(place));
            failures.extend(place.map(|place| (place, unroutable(&letters[place], &self.settings.label))));
        }
        self.transactions().push(channel);
        Ok(failures)
    }

    /// The error of the first exchange that is not there, if there is one.
    async fn missing_exchange(&self, letters: &[Letter<'_>], live: &Live) -> Option<TransportError> {
        let exchanges: BTreeSet<&str> = letters.iter().map(|letter| &*letter.exchange).collect();
        let channel = self.publishing.channel(live).await.ok()?;
        let passive = ExchangeDeclareOptions {
            passive: true,
            ..ExchangeDeclareOptions::default()
        };
        for exchange in exchanges.into_iter().filter(|exchange| !exchange.is_empty()) {
            let asking =
                channel.exchange_declare(exchange.into(), ExchangeKind::Direct, passive, FieldTable::default());
            let what = format!("publishing to exchange `{exchange}`");
            if let Err(error) = self.publishing.call(live, &what, asking).await {
                return Some(error);
            }
        }
        None
    }

    async fn begin(&self) -> Result<TransactionChannel, TransportError> {
        let live = self.publishing.live().await?;
        let channel = self.publishing.channel(&live).await?;
        let selecting = channel.tx_select();
        self.publishing
            .call(&live, "asking for transactions", selecting)
            .await?;
        Ok(TransactionChannel { channel, live })
    }
}

impl TransactionChannel {
    fn stands(&self) -> bool {
        self.live.stands() && self.channel.status().connected()
    }
}

//! Which exchanges take messages: a transaction that publishes to another costs the channel, and all that was in hand on it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapin::ExchangeKind;
use lapin::options::ExchangeDeclareOptions;
use lapin::types::FieldTable;
use ruststream::transport::{ErrorKind, TransportError};
use tokio::time::Instant;

use crate::error;
use crate::outbox::Outbox;

/// How long an exchange that refused a message is not tried again.
const REFUSED_FOR: Duration = Duration::from_mins(1);

/// What is known of exchanges, by name.
#[derive(Default)]
pub(crate) struct Exchanges {
    known: Mutex<HashMap<String, Known>>,
}

enum Known {
    There,
    /// It takes nothing of this user, as was found out then.
    Refuses(Instant, TransportError),
}

impl Exchanges {
    /// Takes note that a transaction failed which published to these.
    pub(crate) fn failed<'a>(&self, exchanges: impl Iterator<Item = &'a str>, failure: &TransportError) {
        let mut known = self.lock();
        known.retain(|_, known| matches!(known, Known::Refuses(..)));
        if failure.kind() != ErrorKind::Denied {
            return;
        }
        let text = failure.to_string();
        for exchange in exchanges {
            let name = if exchange.is_empty() { "amq.default" } else { exchange };
            if text.contains(&format!("exchange '{name}'")) {
                known.insert(
                    exchange.to_owned(),
                    Known::Refuses(Instant::now(), error::again(failure)),
                );
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox {
    /// Whether an exchange takes messages, as far as that can be known before.
    ///
    /// # Errors
    ///
    /// Where it is missing, or refused one a short while ago. That the server cannot be asked is none.
    pub(crate) async fn takes_messages(&self, exchange: &str) -> Result<(), TransportError> {
        match self.exchanges.lock().get(exchange) {
            Some(Known::There) => return Ok(()),
            Some(Known::Refuses(at, error)) if at.elapsed() < REFUSED_FOR => return Err(error::again(error)),
            _ => {}
        }
        if !exchange.is_empty() {
            match self.ask_for_exchange(exchange).await {
                Err(error) if !error.is_transient() => return Err(error),
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
        }
        self.exchanges.lock().insert(exchange.to_owned(), Known::There);
        Ok(())
    }

    async fn ask_for_exchange(&self, exchange: &str) -> Result<(), TransportError> {
        let live = self.publishing.live().await?;
        let channel = self.publishing.channel(&live).await?;
        let passive = ExchangeDeclareOptions {
            passive: true,
            ..ExchangeDeclareOptions::default()
        };
        // Its kind is not compared.
        let asking = channel.exchange_declare(exchange.into(), ExchangeKind::Direct, passive, FieldTable::default());
        let what = format!("exchange `{exchange}`");
        self.publishing.call(&live, &what, asking).await
    }
}

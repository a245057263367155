//! What goes wrong on the way in.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ruststream::memory::MemoryPublisher;
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::transport::{Publish, PublishError};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Flaw, Shared};

/// Publishes that were confirmed and not yet made; they end with their connection.
#[derive(Default)]
pub(crate) struct Unsent(Mutex<Vec<JoinHandle<()>>>);

impl Drop for Unsent {
    fn drop(&mut self) {
        for task in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

#[derive(Clone)]
pub(crate) struct BrokenPublisher {
    pub(super) shared: Arc<Shared>,
    pub(super) inner: MemoryPublisher,
    pub(super) unsent: Arc<Unsent>,
}

impl BrokenPublisher {
    /// How often the next message is stored.
    fn copies(&self, message: &Outgoing<'_>) -> usize {
        let number = 1 + self.shared.published.fetch_add(1, Ordering::Relaxed);
        match self.shared.flaw {
            Flaw::LosesEveryTenth if number.is_multiple_of(10) => 0,
            Flaw::DoublesEveryTenth if number.is_multiple_of(10) => 2,
            Flaw::LosesBeyondFiveThousand if number > 5000 => 0,
            Flaw::LosesEmpty if message.payload().is_empty() => 0,
            _ => 1,
        }
    }

    /// The payload and the headers as they are stored.
    fn spoiled(&self, message: &Outgoing<'_>) -> (Vec<u8>, HeaderMap) {
        let mut payload = message.payload().to_vec();
        let mut headers = message.headers().clone();
        match self.shared.flaw {
            Flaw::BreaksText => {
                if let Ok(text) = std::str::from_utf8(message.payload()) {
                    payload = text.replace(|letter: char| !letter.is_ascii(), "?").into_bytes();
                }
            }
            Flaw::CutsAtZero => payload.truncate(payload.iter().position(|byte| *byte == 0).unwrap_or(payload.len())),
            Flaw::CutsLarge => payload.truncate(64 * 1024),
            Flaw::LosesDuplicateHeaders => {
                headers = HeaderMap::new();
                for (name, value) in message.headers().iter() {
                    headers.insert(name.to_owned(), value.to_vec());
                }
            }
            Flaw::LosesHeadersBeyondEight => {
                let pairs = message.headers().iter().take(8);
                headers = pairs.map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
            }
            Flaw::BreaksHeaderBytes => {
                let lossy = |value| String::from_utf8_lossy(value).into_owned();
                let pairs = message.headers().iter();
                headers = pairs.map(|(name, value)| (name.to_owned(), lossy(value))).collect();
            }
            _ => {}
        }
        (payload, headers)
    }
}

impl Publish for BrokenPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let shared = &self.shared;
        if shared.has(Flaw::LosesOneOfTwoAtOnce) {
            let others = shared.publishing.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            shared.publishing.fetch_sub(1, Ordering::Relaxed);
            if others > 0 {
                return Ok(());
            }
        }
        for message in messages {
            let copies = self.copies(message);
            let (payload, headers) = self.spoiled(message);
            let mut stored = Outgoing::new(message.destination(), &payload).with_headers(&headers);
            if let Some(key) = message.key().filter(|_| !shared.has(Flaw::LosesKeys)) {
                stored = stored.with_key(key);
            }
            if !shared.has(Flaw::PublishesAtOnce) {
                stored = stored.with_delay(message.delay());
            }
            if shared.has(Flaw::ConfirmsBeforeItStores) {
                let publisher = self.inner.clone();
                let destination = message.destination().to_owned();
                let key = message.key().map(<[u8]>::to_vec);
                let delay = message.delay();
                let task = tokio::spawn(async move {
                    sleep(Duration::from_millis(1)).await;
                    let mut late = Outgoing::new(&destination, &payload)
                        .with_headers(&headers)
                        .with_delay(delay);
                    if let Some(key) = &key {
                        late = late.with_key(key);
                    }
                    let _ = publisher.publish(&[late]).await;
                });
                self.unsent.0.lock().unwrap_or_else(PoisonError::into_inner).push(task);
                continue;
            }
            for _ in 0..copies {
                self.inner.publish(&[stored]).await?;
            }
        }
        Ok(())
    }
}

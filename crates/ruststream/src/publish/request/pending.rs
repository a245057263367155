//! The requests of one client that are not answered yet, and the handler that answers them.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::codec::{Codec, CodecError, compression};
use crate::handler::{Call, Handler, Message, Mounting, Outcome, Scope, Single};
use crate::message::{Incoming, header};
use crate::publish::Publisher;

/// Reads a reply and gives it to whoever waits for it.
type Answer = Box<dyn FnOnce(Incoming<'_>) + Send>;

/// The requests of one client that are not answered yet.
pub(crate) struct Pending {
    /// Stands before the number of a request in its correlation id, so that no two clients have an id in common.
    prefix: String,
    next: AtomicU64,
    strays: AtomicU64,
    /// `None` once no reply can come any more.
    waiting: Mutex<Option<Waiting>>,
}

type Waiting = HashMap<u64, Answer, BuildHasherDefault<Numbers>>;

/// Spreads the numbers of requests. They are given here, one after the other, so nobody can choose them to collide.
#[derive(Default)]
struct Numbers(u64);

impl Hasher for Numbers {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 by the golden ratio: neighbours come far apart.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Pending {
    pub(crate) fn new() -> Self {
        // Keys of the standard library's hasher are drawn by the operating system; a hash of nothing shows that.
        let prefix = format!("{:016x}", RandomState::new().hash_one(()));
        Self {
            prefix,
            next: AtomicU64::new(0),
            strays: AtomicU64::new(0),
            waiting: Mutex::new(Some(Waiting::default())),
        }
    }

    /// What is random in the name of its place for replies.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Expects the reply to one more request. `None` once no reply can come any more.
    pub(super) fn expect<A>(self: &Arc<Self>, codec: &Codec) -> Option<Expected<A>>
    where
        A: for<'a> Message<'a> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let codec = codec.clone();
        let answer: Answer = Box::new(move |incoming| {
            // Whoever waited may be gone meanwhile.
            let _ = sender.send(read(incoming, &codec));
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting().as_mut()?.insert(number, answer);
        Some(Expected {
            pending: self.clone(),
            number,
            receiver,
            ended: false,
        })
    }

    /// How many replies answered no request that still waits.
    pub(super) fn strays(&self) -> u64 {
        self.strays.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting().is_none()
    }

    /// Ends all requests: no reply can come any more.
    pub(crate) fn close(&self) {
        let ended = self.waiting().take();
        drop(ended);
    }

    fn take(&self, correlation_id: &str) -> Option<Answer> {
        let number = correlation_id.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        let number = u64::from_str_radix(number, 16).ok()?;
        self.waiting().as_mut()?.remove(&number)
    }
}

/// Reads a reply, which no layer has seen.
fn read<A: for<'a> Message<'a>>(incoming: Incoming<'_>, codec: &Codec) -> Result<A, CodecError> {
    let payload = compression::plain(incoming.headers(), incoming.payload())?;
    A::read(incoming.with_payload(&payload), codec)
}

/// A reply that is expected. Dropped, it is expected no more.
pub(super) struct Expected<A> {
    pending: Arc<Pending>,
    number: u64,
    receiver: oneshot::Receiver<Result<A, CodecError>>,
    /// It came, or never will.
    ended: bool,
}

impl<A> Expected<A> {
    pub(super) fn correlation_id(&self) -> String {
        let mut id = String::with_capacity(self.pending.prefix.len() + 1 + 16);
        id.push_str(&self.pending.prefix);
        id.push('-');
        // By hand: `format!` takes five times as long.
        let digits = (64 - self.number.leading_zeros()).div_ceil(4).max(1);
        for place in (0..digits).rev() {
            let digit = (self.number >> (4 * place)) & 0xf;
            id.extend(char::from_digit(digit as u32, 16));
        }
        id
    }

    /// Waits for the answer; `None` where it will never come.
    pub(super) async fn answer(&mut self) -> Option<Result<A, CodecError>> {
        let answer = (&mut self.receiver).await.ok();
        self.ended = true;
        answer
    }
}

impl<A> Drop for Expected<A> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let forgotten = self
            .pending
            .waiting()
            .as_mut()
            .and_then(|waiting| waiting.remove(&self.number));
        drop(forgotten);
    }
}

/// Handles the replies to the requests of one client.
pub(crate) struct Replies(pub(crate) Arc<Pending>);

impl Replies {
    /// The handler, ready to be driven.
    pub(crate) fn into_handler(self, publisher: Publisher) -> Handler {
        let scope = Scope {
            state: Arc::new(()),
            publisher,
        };
        Mounting { scope, layers: () }.single(self)
    }
}

impl Single<()> for Replies {
    async fn call<'a>(&'a self, call: Call<'a, ()>) -> Outcome {
        let incoming = call.incoming();
        let answer = incoming
            .headers()
            .get_str(header::CORRELATION_ID)
            .and_then(|id| self.0.take(id));
        if let Some(answer) = answer {
            answer(incoming);
        } else {
            self.0.strays.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(
                subscription = call.source(),
                "a reply answers no request that still waits"
            );
        }
        Outcome::ACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_id_leads_back_to_its_request() {
        for number in [0, 1, 15, 16, 0xabc, u64::MAX - 1] {
            let pending = Arc::new(Pending::new());
            pending.next.store(number, Ordering::Relaxed);
            let expected = pending.expect::<u64>(&Codec::Json).unwrap();
            let id = expected.correlation_id();
            assert!(id.ends_with(&format!("-{number:x}")), "{id}");
            assert!(pending.take(&id).is_some(), "{id}");
            assert!(pending.take(&id).is_none(), "{id}");
        }
    }
}

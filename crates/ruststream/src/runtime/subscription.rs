//! One subscription from its first fetch to its last settle.

use std::sync::Arc;

use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Duration, sleep_until, timeout};

use super::buffer::Buffer;
use super::fetcher::fetch_all;
use super::observer::Watched;
use super::settler::settle_all;
use super::shared::{Counts, Phase, Shared};
use super::worker::WorkerHand;
use crate::handler::{Hand, Handler, panic_text};
use crate::transport::{Delivery, ErrorKind, Fetch, Publish, Settle, TransportError};

/// How long calls that are dropped at the end of the grace period may take to go.
const DROPPING: Duration = Duration::from_millis(500);
/// How long the last receipts may take to be settled.
const SETTLING: Duration = Duration::from_secs(5);

/// Runs a subscription until it is told to stop, drains it within `grace`, and returns once all is settled or released.
///
/// # Cancel safety
///
/// Dropped, it ends all parts where they are, as a crash would: what is in hand is neither settled nor released.
pub(crate) async fn run<F, S, P>(
    fetch: F,
    settle: S,
    publisher: P,
    handler: Handler,
    shared: Arc<Shared>,
    grace: Duration,
) where
    F: Fetch,
    S: Settle<Receipt = <F::Delivery as Delivery>::Receipt>,
    P: Publish,
{
    let buffer = Arc::new(Buffer::<F::Delivery>::new(shared.clone()));
    let mut workers = Workers {
        handler,
        buffer: buffer.clone(),
        tasks: JoinSet::new(),
        places: Vec::new(),
    };
    let mut fetching = Part::spawn(fetch_all(fetch, buffer.clone()));
    // The last to begin is the first to be dropped: what dropped workers leave behind is not settled any more.
    let mut settling = Part::spawn(settle_all(settle, publisher, buffer.clone()));
    (0..shared.settings.workers).for_each(|worker| workers.start(worker));
    tokio::select! {
        // Told to stop, or failed for good: either way the fetch half ends.
        ended = &mut fetching.0 => note_panic(&shared, "fetch", ended),
        ended = &mut settling.0 => note_panic(&shared, "settle", ended),
        () = shared.signals.stop.cancelled() => {}
        () = workers.watch() => {}
        () = resume_when_due(&buffer) => {}
    }

    shared.enter(Phase::Stopping);
    shared.signals.stop.cancel();
    buffer.close();
    if timeout(grace, workers.finish()).await.is_err() {
        tracing::warn!(subscription = %shared.name, "the grace period of {grace:?} is over; what still runs is released");
        shared.signals.abandon.cancel();
        if timeout(DROPPING, workers.finish()).await.is_err() {
            tracing::error!(
                subscription = %shared.name,
                "a handler blocks its thread and cannot be dropped; its message is delivered again when its lease ends"
            );
            workers.tasks.abort_all();
        }
    }
    if !fetching.0.is_finished() && timeout(SETTLING, &mut fetching.0).await.is_err() {
        fetching.0.abort();
    }
    // What the fetch half brought at the very end is released too.
    buffer.close();
    buffer.seal();
    if !settling.0.is_finished() && timeout(SETTLING, &mut settling.0).await.is_err() {
        settling.0.abort();
        tracing::error!(subscription = %shared.name, "the last receipts were not settled within {SETTLING:?}; their messages are delivered again");
    }
    shared.enter(Phase::Stopped);
}

/// Fails the subscription for good, if the task of one of its halves was ended by a panic of the transport.
fn note_panic(shared: &Shared, half: &str, ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        let text = panic_text(error.into_panic());
        let text = format!("a panic ended the {half} half of the transport: {text}");
        shared.fail(&TransportError::new(ErrorKind::Incompatible, text));
    }
}

/// A task that ends with the subscription it is a part of.
struct Part(JoinHandle<()>);

impl Part {
    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The workers of a subscription, each a task of its own.
struct Workers<D: Delivery> {
    handler: Handler,
    buffer: Arc<Buffer<D>>,
    tasks: JoinSet<()>,
    /// The task of each worker, to know which place became free.
    places: Vec<tokio::task::Id>,
}

impl<D: Delivery> Workers<D> {
    fn start(&mut self, worker: usize) {
        let mut hand: Box<dyn Hand> = Box::new(WorkerHand::new(self.buffer.clone(), worker));
        if let Some(observer) = &self.buffer.shared.settings.observer {
            hand = Box::new(Watched::new(hand, observer.clone()));
        }
        let driven = self.handler.drive(hand);
        let alive = Alive::new(self.buffer.shared.clone());
        let task = self.tasks.spawn(async move {
            driven.await;
            drop(alive);
        });
        match self.places.get_mut(worker) {
            Some(place) => *place = task.id(),
            None => self.places.push(task.id()),
        }
    }

    /// Starts again each worker that a panic ended, until none is left.
    async fn watch(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            self.clear_up(ended, true);
        }
    }

    /// Waits for all workers to end.
    async fn finish(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            self.clear_up(ended, false);
        }
    }

    /// Where a panic ended the worker, starts another in its place, if one is wanted, and then judges what it was about: whoever
    /// sees the message settled sees all workers alive.
    ///
    /// A panic is caught here, by the task, and not around each call: so it costs a message that does not panic nothing,
    /// wherever in the call it comes from.
    fn clear_up(&mut self, ended: Result<(), JoinError>, again: bool) {
        let Some(error) = ended.err().filter(JoinError::is_panic) else {
            return;
        };
        let Some(worker) = self.places.iter().position(|task| *task == error.id()) else {
            return;
        };
        let wreck = self.buffer.slot(worker).take_wreck();
        if again {
            self.start(worker);
        }
        self.buffer.judge_wreck(wreck, &panic_text(error.into_panic()));
    }
}

/// Counts a worker as alive.
struct Alive(Arc<Shared>);

impl Alive {
    fn new(shared: Arc<Shared>) -> Self {
        Counts::add(&shared.counts.workers, 1);
        Self(shared)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.counts.workers.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Makes ready, when its time has come, what was kept in hand. It never ends by itself.
async fn resume_when_due<D: Delivery>(buffer: &Buffer<D>) {
    loop {
        let kept = buffer.shared.signals.held.notified();
        match buffer.resume_kept() {
            None => kept.await,
            Some(due) => tokio::select! {
                () = kept => {}
                () = sleep_until(due) => {}
            },
        }
    }
}

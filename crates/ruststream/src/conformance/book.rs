//! What the handlers of a check do and note: each call, in the order of their beginnings.

use std::borrow::Cow;
use std::fmt::Write;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::rig::Rig;
use super::service::Service;
use super::tally::Tally;
use super::violation::ensure;
use super::{Harness, Violation};
use crate::handler::{
    BatchOutcome, Batched, Call, Definition, Failure, Handler, Layers, Mounting, Outcome, Single, Subscriber,
};
use crate::message::Incoming;
use crate::publish::Prepared;

/// One message in one call of a handler.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) text: String,
    pub(super) attempt: u32,
    /// Which call it was, the first being 0: the messages of a batch share theirs.
    pub(super) call: usize,
    pub(super) began: Instant,
    /// When the handler returned; `None` while it runs, and where it was dropped.
    pub(super) ended: Option<Instant>,
}

/// The runs of the handlers of a check, shared by all of its apps.
#[derive(Clone)]
pub(super) struct Book {
    pages: Arc<watch::Sender<Pages>>,
}

#[derive(Default)]
pub(super) struct Pages {
    pub(super) runs: Vec<Run>,
    /// How many have ended.
    pub(super) ended: usize,
    calls: usize,
}

impl Book {
    pub(super) fn new() -> Self {
        Self {
            pages: Arc::new(watch::Sender::new(Pages::default())),
        }
    }

    /// A handler that notes each run and then does `act`.
    pub(super) fn handler<F, Fut>(&self, act: F) -> impl Subscriber<()> + use<F, Fut>
    where
        F: Fn(Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        One {
            book: self.clone(),
            read: |_| Ok(()),
            act,
        }
    }

    /// A handler that handles whatever comes.
    pub(super) fn acks(&self) -> impl Subscriber<()> + use<> {
        self.handler(|_| async { Outcome::ACK })
    }

    /// A handler of JSON numbers, which handles them.
    pub(super) fn acks_numbers(&self) -> impl Subscriber<()> + use<> {
        One {
            book: self.clone(),
            read: |call| call.decode::<u64>().map(drop),
            act: |_| async { Outcome::ACK },
        }
    }

    /// A handler of batches that notes each run and then does `act`.
    pub(super) fn batches<F, Fut>(&self, act: F) -> impl Subscriber<()> + use<F, Fut>
    where
        F: Fn(Vec<Run>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = BatchOutcome> + Send + 'static,
    {
        Many {
            book: self.clone(),
            act,
        }
    }

    fn begin(&self, messages: &[Incoming<'_>]) -> (usize, Vec<Run>) {
        let mut begun = Vec::new();
        let mut first = 0;
        self.pages.send_modify(|pages| {
            first = pages.runs.len();
            begun = messages.iter().map(|message| Run::new(message, pages.calls)).collect();
            pages.runs.extend_from_slice(&begun);
            pages.calls += 1;
        });
        (first, begun)
    }

    fn end(&self, first: usize, count: usize) {
        let now = Instant::now();
        self.pages.send_modify(|pages| {
            for run in &mut pages.runs[first..first + count] {
                run.ended = Some(now);
            }
            pages.ended += count;
        });
    }

    /// All runs so far.
    pub(super) fn runs(&self) -> Vec<Run> {
        self.pages.borrow().runs.clone()
    }

    /// The runs of one message, in order.
    pub(super) fn runs_of(&self, text: &str) -> Vec<Run> {
        let runs = self.pages.borrow();
        runs.runs.iter().filter(|run| run.text == text).cloned().collect()
    }

    /// Waits until the runs are as `wanted`; false where the deadline passes first.
    pub(super) async fn waits(&self, deadline: Duration, wanted: impl FnMut(&Pages) -> bool) -> bool {
        let mut pages = self.pages.subscribe();
        timeout(deadline, pages.wait_for(wanted))
            .await
            .is_ok_and(|found| found.is_ok())
    }

    /// Waits until as many runs have ended.
    pub(super) async fn ended(&self, count: usize, deadline: Duration) -> Result<(), Violation> {
        let came = self.waits(deadline, |pages| pages.ended >= count).await;
        ensure!(
            came,
            "{count} calls were to end, and within {deadline:?} they did not: {}",
            self.last_runs(),
        );
        Ok(())
    }

    /// Waits until as many runs have begun.
    pub(super) async fn begun(&self, count: usize, deadline: Duration) -> Result<(), Violation> {
        let came = self.waits(deadline, |pages| pages.runs.len() >= count).await;
        ensure!(
            came,
            "{count} calls were to begin, and within {deadline:?} they did not: {}",
            self.last_runs(),
        );
        Ok(())
    }

    /// Waits until each of the messages was handled, and expects that it was handled once.
    pub(super) async fn each_once(&self, sent: &[String], deadline: Duration) -> Result<(), Violation> {
        let mut tally = Tally::of(sent);
        let mut seen = 0;
        let count = sent.len();
        self.waits(deadline, |pages| {
            // Most changes are the end of a run: only when there are enough are they looked through.
            if pages.ended < count {
                return false;
            }
            for run in &pages.runs[seen..] {
                tally.note(run.text.clone());
            }
            seen = pages.runs.len();
            tally.is_complete()
        })
        .await;
        self.was_each_once(sent)
    }

    /// Expects that each of the messages was handled, and once.
    pub(super) fn was_each_once(&self, sent: &[String]) -> Result<(), Violation> {
        let mut tally = Tally::of(sent);
        for run in &self.pages.borrow().runs {
            tally.note(run.text.clone());
        }
        tally.check()
    }

    /// The last runs, for people.
    fn last_runs(&self) -> String {
        const SHOWN: usize = 6;
        let pages = self.pages.borrow();
        let first = pages.runs.len().saturating_sub(SHOWN);
        let mut text = format!("{} began, {} ended; the last: ", pages.runs.len(), pages.ended);
        for run in &pages.runs[first..] {
            let end = if run.ended.is_some() { "" } else { " not ended" };
            let _ = write!(text, "[{} attempt {}{end}] ", run.text, run.attempt);
        }
        text
    }
}

impl Run {
    fn new(message: &Incoming<'_>, call: usize) -> Self {
        Self {
            text: String::from_utf8_lossy(message.payload()).into_owned(),
            attempt: message.attempt(),
            call,
            began: Instant::now(),
            ended: None,
        }
    }
}

/// Expects that an app which is started now is given nothing.
pub(super) async fn finds_nothing<H: Harness>(rig: &Rig<'_, H>, because: &str) -> Result<(), Violation> {
    let book = Book::new();
    let service = Service::start(rig, book.acks(), |_| {}).await?;
    sleep(rig.harness.quiet()).await;
    service.stop().await?;
    match book.runs().first() {
        None => Ok(()),
        Some(run) => Err(Violation::new(format!(
            "{because}, and a second app was given {} (attempt {})",
            run.text, run.attempt
        ))),
    }
}

/// A failure as a handler's `Err` makes it.
pub(super) fn failed_with(text: &'static str) -> Outcome {
    Outcome::Failed(Box::new(Failure::error(text)))
}

/// A reply to a destination that is known at run time only.
pub(super) fn reply_to(destination: &str, payload: &str) -> Outcome {
    Outcome::Reply(Box::new(Prepared {
        destination: Cow::Owned(destination.to_owned()),
        payload: payload.as_bytes().to_vec(),
        ..Prepared::default()
    }))
}

/// A handler of single messages.
struct One<F> {
    book: Book,
    read: fn(&Call<'_, ()>) -> Result<(), Outcome>,
    act: F,
}

impl<F, Fut> Subscriber<()> for One<F>
where
    F: Fn(Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    fn definition(&self) -> Definition {
        Definition::new("check", "check")
    }

    fn into_handler<L: Layers>(self, mounting: Mounting<(), L>) -> Handler {
        mounting.single(self)
    }
}

impl<F, Fut> Single<()> for One<F>
where
    F: Fn(Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    async fn call<'a>(&'a self, call: Call<'a, ()>) -> Outcome {
        if let Err(outcome) = (self.read)(&call) {
            return outcome;
        }
        let (place, mut begun) = self.book.begin(&[call.incoming()]);
        let acting = (self.act)(begun.swap_remove(0));
        let outcome = acting.await;
        self.book.end(place, 1);
        outcome
    }
}

/// A handler of batches.
struct Many<F> {
    book: Book,
    act: F,
}

impl<F, Fut> Subscriber<()> for Many<F>
where
    F: Fn(Vec<Run>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = BatchOutcome> + Send + 'static,
{
    fn definition(&self) -> Definition {
        Definition::new("check", "check").with_batch()
    }

    fn into_handler<L: Layers>(self, mounting: Mounting<(), L>) -> Handler {
        mounting.batched(self)
    }
}

impl<F, Fut> Batched<()> for Many<F>
where
    F: Fn(Vec<Run>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = BatchOutcome> + Send + 'static,
{
    async fn call<'a>(&'a self, calls: &'a [Call<'a, ()>]) -> BatchOutcome {
        let incoming: Vec<_> = calls.iter().map(Call::incoming).collect();
        let (first, begun) = self.book.begin(&incoming);
        let outcome = (self.act)(begun).await;
        self.book.end(first, calls.len());
        outcome
    }
}

//! An app under test.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::TestBroker;
use super::journal::{Journal, Seat};
use super::observer::Recorder;
use super::transport::{StandIn, StandInSource};
use super::{clock, transcript};
use crate::app::{AppError, AppHandle, Arriving, Leaving, Reader, Running, RustStream};
use crate::memory::{MemoryBroker, Queue};
use crate::publish::Client;
use crate::runtime::Observer;
use crate::transport::Routes;

/// An app under test: it runs in process, with the in-process broker in the place of each of its own.
///
/// The [module](super) has an example. It is its first broker, too ([`TestBroker`]): what the test publishes and asks concerns
/// that one, unless it selects [another](Self::broker).
///
/// Every subscription reads a queue of the name that its own source has. Where several on one broker have the same name, as
/// groups of one stream have, each gets a copy of every message; several that read one queue of RabbitMQ share its messages. What is
/// published to an exchange is led to queues as the app has declared and bound them. Names that nobody reads take in what is published to them
/// without a bound, and [`published`](TestBroker::published) tells it.
///
/// Dropping it begins a shutdown without waiting for it, and prints the [transcript](Self::transcript) if the test panics.
pub struct TestApp {
    /// Taken at the shutdown.
    running: Mutex<Option<Running>>,
    handle: AppHandle,
    brokers: Vec<TestBroker>,
    journal: Arc<Journal>,
    deadline: Duration,
    /// The transcript was printed.
    told: AtomicBool,
}

impl TestApp {
    /// How long [`settled`](Self::settled) waits where nothing else is set.
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

    /// Starts an app, or one still being built, as [`RustStream::start`] does: its hooks run too.
    ///
    /// # Errors
    ///
    /// Where the app is put together wrongly, or one of its hooks fails.
    pub async fn start(app: impl Into<RustStream>) -> Result<Self, AppError> {
        let mut app = app.into();
        // By the rules of its own brokers.
        app.check()?;
        let journal = Journal::new();
        let mut brokers = Vec::new();
        app.move_to(|leaving| {
            let (broker, arriving) = seat(leaving, brokers.len(), &journal);
            brokers.push(broker);
            arriving
        });
        let running = app.start().await?;
        Ok(Self {
            handle: running.handle(),
            running: Mutex::new(Some(running)),
            brokers,
            journal,
            deadline: Self::DEFAULT_DEADLINE,
            told: AtomicBool::new(false),
        })
    }

    /// As [`start`](Self::start), and then stops tokio's clock, unless it is stopped already: an hour of backoff takes no time.
    ///
    /// The hooks that run at the start still have the running clock. It stays stopped to the end of the test.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// On a multi-thread runtime, whose clock cannot be stopped.
    pub async fn start_paused(app: impl Into<RustStream>) -> Result<Self, AppError> {
        let test = Self::start(app).await?;
        clock::stop();
        Ok(test)
    }

    /// Sets how long [`settled`](Self::settled) waits, by the clock on the wall.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Waits until all that was published is handled, with all that followed from it: until no message is ready, delayed, kept
    /// for a retry, in a handler's hands or being published, on any queue that the app reads, and no background
    /// service has anything to do.
    ///
    /// It knows nothing of tasks that a handler spawned and does not wait for.
    ///
    /// # Panics
    ///
    /// Where that takes longer than the [deadline](Self::deadline), by the clock on the wall, however the clock of the app is
    /// moved; with the [transcript](Self::transcript).
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    #[track_caller]
    pub fn settled(&self) -> impl Future<Output = ()> + Send + '_ {
        let caller = Location::caller();
        async move {
            let (expired, _watching) = clock::deadline(self.deadline);
            tokio::select! {
                biased;
                () = self.quiet() => {}
                _ = expired => {
                    self.told.store(true, Ordering::Relaxed);
                    panic!(
                        "not settled within {}, asked for at {caller}\n{}",
                        clock::text(self.deadline),
                        self.transcript()
                    );
                }
            }
        }
    }

    async fn quiet(&self) {
        loop {
            let mut landed = std::pin::pin!(self.journal.landed.notified());
            landed.as_mut().enable();
            let before = self.stored();
            for broker in &self.brokers {
                broker.memory().each_idle().await;
            }
            if self.journal.in_flight() > 0 {
                landed.await;
                continue;
            }
            self.handle.caught_up().await;
            let mut backlogs = self.brokers.iter().flat_map(|broker| broker.memory().backlogs());
            // Each was empty at some moment, and none got anything since: so all are empty at this one.
            if backlogs.all(|backlog| backlog.is_empty()) && self.stored() == before {
                return;
            }
        }
    }

    /// How many messages were stored so far in queues that are read.
    fn stored(&self) -> u64 {
        let backlogs = self.brokers.iter().flat_map(|broker| broker.memory().backlogs());
        backlogs.map(|backlog| backlog.published).sum()
    }

    /// The broker of this label, as the app's [`Health`](crate::app::Health) shows it; the first of several.
    ///
    /// # Panics
    ///
    /// Where the app has none of this label.
    #[track_caller]
    pub fn broker(&self, label: &str) -> &TestBroker {
        let known: Vec<_> = self.brokers.iter().map(TestBroker::label).collect();
        match known.iter().position(|one| *one == label) {
            Some(place) => &self.brokers[place],
            None => panic!(
                "the app has no broker of the label `{label}`; it has `{}`",
                known.join("`, `")
            ),
        }
    }

    /// The running app: its health, its publishers; for pausing subscriptions.
    pub fn handle(&self) -> &AppHandle {
        &self.handle
    }

    /// A client on the app's first broker, as [`AppHandle::client`] makes it; its requests count as published by the test.
    ///
    /// # Errors
    ///
    /// As [`AppHandle::client`].
    pub async fn client(&self) -> Result<Client, AppError> {
        self.handle.client_by(0, self.brokers[0].publisher().clone()).await
    }

    /// What happened so far, a line for each call and each publish in their order, and what is still to be done.
    pub fn transcript(&self) -> String {
        transcript::of(&self.journal, &self.brokers, &self.handle)
    }

    /// Shuts the app down, as [`Running::shutdown`] does: its hooks run too. What happened can still be asked. Once it is shut
    /// down, it does nothing.
    ///
    /// # Errors
    ///
    /// As [`Running::shutdown`].
    pub async fn shutdown(&self) -> Result<(), AppError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        match running {
            Some(running) => running.shutdown().await,
            None => Ok(()),
        }
    }
}

/// The stand-in for a broker, with a seat on it for each of its subscriptions.
fn seat(leaving: Leaving, number: usize, journal: &Arc<Journal>) -> (TestBroker, Arriving<StandIn>) {
    let Leaving {
        label,
        routes,
        subscriptions,
        codec,
    } = leaving;
    let routes: Option<Arc<dyn Routes>> = routes.map(Into::into);
    let stand_in = StandIn {
        label,
        number,
        memory: MemoryBroker::new().capacity(usize::MAX).max_payload(usize::MAX),
        journal: journal.clone(),
        routes,
    };
    let mut readers: HashMap<Arc<str>, usize> = HashMap::new();
    for reader in &subscriptions {
        *readers.entry(reader.name.clone()).or_default() += 1;
    }
    let mut seats = Vec::new();
    let mut arriving = Vec::new();
    for reader in subscriptions {
        let Reader {
            name,
            handler,
            audience,
        } = reader;
        let queue = match audience {
            Some(audience) => Queue::for_audience(&*name, audience),
            None if readers[&name] > 1 && !MemoryBroker::is_pattern(&name) => Queue::broadcast(&*name),
            None => Queue::new(&*name),
        };
        let seat = Arc::new(Seat {
            broker: number,
            name,
            handler,
        });
        seats.push(seat.clone());
        let observer: Arc<dyn Observer> = Arc::new(Recorder {
            journal: journal.clone(),
            seat,
        });
        arriving.push((StandInSource(queue), observer));
    }
    let broker = TestBroker::new(stand_in.clone(), seats, codec);
    (
        broker,
        Arriving {
            broker: stand_in,
            seats: arriving,
        },
    )
}

impl Deref for TestApp {
    type Target = TestBroker;

    fn deref(&self) -> &TestBroker {
        // An app without a broker does not start.
        &self.brokers[0]
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.told.load(Ordering::Relaxed) {
            #[expect(clippy::print_stderr, reason = "whose test has failed reads it there")]
            {
                eprintln!("{}", self.transcript());
            }
        }
    }
}

impl fmt::Debug for TestApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestApp")
            .field("brokers", &self.brokers)
            .finish_non_exhaustive()
    }
}

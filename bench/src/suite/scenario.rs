//! What a row is made of.

use std::pin::Pin;
use std::sync::Arc;

use super::{Failed, Transport, Trial};

type Run<T> = dyn Fn(Trial<T>) -> Pin<Box<dyn Future<Output = Result<(), Failed>> + Send>> + Send + Sync;

/// The names that a loop can have; the pages have a word for each.
const NAMES: [&str; 8] = ["bare", "tuned", "crate", "service", "none", "hand", "empty", "deep"];

/// One row: loops that do the same work. The first is the baseline.
pub struct Scenario<T> {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) about: &'static str,
    pub(super) workers: usize,
    pub(super) baseline: Option<&'static str>,
    pub(super) round_trips: Option<RoundTrips>,
    pub(super) at_most: u64,
    pub(super) loops: Vec<Loop<T>>,
}

/// What the baseline waits for.
#[derive(Clone, Copy)]
pub(super) struct RoundTrips {
    pub(super) command: &'static str,
    pub(super) per_message: f64,
}

pub(super) struct Loop<T> {
    pub(super) name: &'static str,
    pub(super) run: Arc<Run<T>>,
}

impl<T: Transport> Scenario<T> {
    /// A row without loops, of one worker.
    ///
    /// # Panics
    ///
    /// Where `id` does not begin with the name of the transport and a dot.
    pub fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        let id = id.into();
        assert!(
            id.strip_prefix(T::NAME).is_some_and(|rest| rest.starts_with('.')),
            "`{id}` is no id of a scenario over {}",
            T::NAME
        );
        Self {
            id,
            title: title.into(),
            about: "",
            workers: 1,
            baseline: None,
            round_trips: None,
            at_most: u64::MAX,
            loops: Vec::new(),
        }
    }

    /// What the loops do, in a sentence or two for the page.
    pub fn about(mut self, text: &'static str) -> Self {
        self.about = text;
        self
    }

    /// Workers of the service and tasks of the other loops. One unless set.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Says that a task of the baseline makes so many round trips for a message, one after another, each as long as the
    /// `command` that [`Transport::server`] measured. Fewer than one where a round trip brings several messages.
    pub fn round_trips(mut self, command: &'static str, per_message: f64) -> Self {
        self.round_trips = Some(RoundTrips { command, per_message });
        self
    }

    /// Sets how many messages one call of a loop gets at most, where more would not fit into memory. A round then calls it
    /// several times.
    pub fn at_most(mut self, messages: u64) -> Self {
        self.at_most = messages;
        self
    }

    /// Holds the loops against this one, where it is not the first.
    pub fn baseline(mut self, name: &'static str) -> Self {
        self.baseline = Some(name);
        self
    }

    /// Adds a loop.
    ///
    /// # Panics
    ///
    /// Where the name is none of the loops' names, or is there already.
    pub fn turn<F, Running>(mut self, name: &'static str, run: F) -> Self
    where
        F: Fn(Trial<T>) -> Running + Send + Sync + 'static,
        Running: Future<Output = Result<(), Failed>> + Send + 'static,
    {
        assert!(
            NAMES.contains(&name),
            "{}: no loop is named `{name}`: {NAMES:?}",
            self.id
        );
        assert!(
            self.loops.iter().all(|one| one.name != name),
            "{}: two loops are named `{name}`",
            self.id
        );
        self.loops.push(Loop {
            name,
            run: Arc::new(move |trial| Box::pin(run(trial))),
        });
        self
    }

    /// The loop that the others are held against.
    pub(super) fn baseline_name(&self) -> &'static str {
        let first = self.loops.first().map(|one| one.name);
        self.baseline
            .or(first)
            .unwrap_or_else(|| panic!("{} has no loop", self.id))
    }
}

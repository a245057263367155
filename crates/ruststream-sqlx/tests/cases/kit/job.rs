//! The messages of the cases: each says what its handler is to do.

use serde::{Deserialize, Serialize};

/// A message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) work: Work,
    /// The only node where the work is as described; it is done at once on others.
    pub(crate) only_on: Option<String>,
}

/// What a handler is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Work {
    /// To end at once, well.
    Done,
    /// To end well after so many milliseconds.
    Wait(u64),
    /// To fail in the first attempts, so many.
    Fail(u32),
    /// Not to end in the first attempts, so many.
    Hold(u32),
    /// To kill its process in the first attempts, so many.
    Kill(u32),
    /// To block its thread and never end.
    Block,
    /// To send a message of this id that is done at once, to this queue, kept back for so many milliseconds.
    Send { queue: String, id: u64, delay: u64 },
}

impl Job {
    pub(crate) fn new(id: u64, work: Work) -> Self {
        Self {
            id,
            work,
            only_on: None,
        }
    }

    pub(crate) fn only_on(mut self, node: &str) -> Self {
        self.only_on = Some(node.to_owned());
        self
    }

    pub(crate) fn many(ids: impl IntoIterator<Item = u64>, work: &Work) -> Vec<Self> {
        ids.into_iter().map(|id| Self::new(id, work.clone())).collect()
    }
}

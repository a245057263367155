//! What all publishers on one broker share.

use std::sync::{Mutex, PoisonError};

use super::{Prepared, PublishLayers};

/// The most messages kept.
const MOST: usize = 1024;
/// A buffer that grew beyond this is let go.
const LARGEST: usize = 16 * 1024;

/// What all publishers on one broker share: the layers around them, and messages that were sent, kept with their buffers for the
/// next, so that a reply allocates nothing once its subscription is warm.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    // Boxed, because that is how a message travels from the handler to the settler.
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    free: Mutex<Vec<Box<Prepared>>>,
    layers: PublishLayers,
}

impl Pool {
    pub(crate) fn new(layers: PublishLayers) -> Self {
        Self {
            layers,
            ..Self::default()
        }
    }

    /// The layers around the publishing.
    pub(crate) fn layers(&self) -> &PublishLayers {
        &self.layers
    }

    /// An empty message.
    pub(crate) fn take(&self) -> Box<Prepared> {
        self.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default()
    }

    /// Takes messages back.
    pub(crate) fn put(&self, messages: impl Iterator<Item = Box<Prepared>>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for mut message in messages {
            if free.len() < MOST && message.payload.capacity() <= LARGEST {
                message.clear();
                free.push(message);
            }
        }
    }
}

//! Subscriptions that are opened while an app is running: the places for replies to its clients.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::AppError;
use super::broker::{How, Live};
use crate::publish::{Client, Pending, Publisher};
use crate::runtime::{Phase, Shared};
use crate::transport::{ErrorKind, TransportError};

/// The most of an app's name that stands in the name of a place for replies: some brokers take short names only.
const LONGEST_NAME: usize = 64;

/// What is opened while an app is running. It outlives the subscriptions of its handlers, and ends before the connections do.
pub(super) struct Late {
    /// The name of the app, as it stands in names of places.
    app: String,
    /// How it is opened; its token ends all that was.
    how: How,
    open: Mutex<Option<Open>>,
}

/// What is open, until the app has shut down.
struct Open {
    lives: Vec<Arc<dyn Live>>,
    tasks: JoinSet<()>,
    subscriptions: Vec<(Arc<Shared>, usize)>,
}

impl Late {
    /// `how` is how the app was started.
    pub(super) fn new(app: &str, how: How, lives: Vec<Arc<dyn Live>>) -> Self {
        let word = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        Self {
            app: app.chars().take(LONGEST_NAME).map(word).collect(),
            how: How {
                stop: CancellationToken::new(),
                ..how
            },
            open: Mutex::new(Some(Open {
                lives,
                tasks: JoinSet::new(),
                subscriptions: Vec::new(),
            })),
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a place for replies on the broker at this place of the list, and makes a client of it.
    pub(super) async fn open_client(&self, broker: usize, publisher: Publisher) -> Result<Client, AppError> {
        let live = self.open().as_ref().map(|open| open.lives[broker].clone());
        let live = live.ok_or_else(closed)?;
        let pending = Arc::new(Pending::new());
        let name = format!("replies.{}.{}", self.app, pending.prefix());
        let reading = self.how.stop.child_token();
        let how = How {
            stop: reading.clone(),
            ..self.how.clone()
        };
        let opened = tokio::select! {
            opened = live.open_replies(name, pending.clone(), how) => opened,
            () = reading.cancelled() => Err(closed()),
        };
        let (shared, runs) = opened?;
        let client = Client::new(publisher, &shared.name, pending.clone(), reading);
        let mut open = self.open();
        let Some(open) = &mut *open else {
            return Err(closed());
        };
        while open.tasks.try_join_next().is_some() {}
        open.subscriptions.retain(is_open);
        open.subscriptions.push((shared, broker));
        let ends = Ends(pending);
        open.tasks.spawn(async move {
            let _ends = ends;
            runs.await;
        });
        Ok(client)
    }

    /// Asks the broker at this place of the list whether it is there.
    pub(super) async fn ping(&self, broker: usize) -> Result<(), TransportError> {
        let live = self.open().as_ref().map(|open| open.lives[broker].clone());
        match live {
            Some(live) => live.ping().await,
            None => Err(TransportError::new(ErrorKind::Closed, "the app has shut down")),
        }
    }

    /// The subscriptions that were opened and still are.
    pub(super) fn subscriptions(&self) -> Vec<(Arc<Shared>, usize)> {
        let open = self.open();
        let subscriptions = open.iter().flat_map(|open| &open.subscriptions);
        subscriptions.filter(|one| is_open(one)).cloned().collect()
    }

    /// Ends all that was opened, and closes the connections.
    pub(super) async fn shut_down(&self) {
        self.how.stop.cancel();
        let open = self.open().take();
        let Some(mut open) = open else { return };
        while open.tasks.join_next().await.is_some() {}
        for live in open.lives {
            live.close().await;
        }
    }

    /// As [`shut_down`](Self::shut_down), without waiting and without closing.
    pub(super) fn let_go(&self) {
        self.how.stop.cancel();
        if let Some(mut open) = self.open().take() {
            open.tasks.detach_all();
        }
    }
}

fn closed() -> AppError {
    AppError::failed("the app has shut down; make a client while it is running")
}

fn is_open((shared, _): &(Arc<Shared>, usize)) -> bool {
    shared.fares().0 != Phase::Stopped
}

/// Ends the requests that wait when nobody reads their replies any more, however that came.
struct Ends(Arc<Pending>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.close();
    }
}

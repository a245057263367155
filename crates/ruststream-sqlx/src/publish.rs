//! Sending messages.

use std::sync::Arc;

use ruststream::message::Outgoing;
use ruststream::transport::{ErrorKind, Publish, PublishError, TransportError};

use crate::clock::millis;
use crate::connection::Routes;
use crate::engine::Engine;
use crate::operation::{Insert, NewRow, Operation};
use crate::options::{InboxOptions, LONGEST_UNIQUE_KEY};
use crate::source::check_name;
use crate::table::{Layout, TableWork};

/// Stores messages in queues. What is published at the same time by any number of tasks is stored in one transaction.
///
/// The destination of a message is the name of a queue. No one needs to read it yet.
#[derive(Debug, Clone)]
pub struct SqlxPublisher {
    engine: Engine,
    max_payload: usize,
    routes: Routes,
}

impl SqlxPublisher {
    pub(crate) fn new(engine: Engine, max_payload: usize, routes: Routes) -> Self {
        Self {
            engine,
            max_payload,
            routes,
        }
    }

    fn check(&self, message: &Outgoing<'_>) -> Result<(), TransportError> {
        check_message(message, self.max_payload)
    }
}

impl SqlxPublisher {
    /// Stores messages in the tables of the user's own that their names lead to: those of one table in one transaction.
    async fn store_routed(
        &self,
        mut routed: Vec<(usize, Arc<Layout>, NewRow)>,
        failures: &mut Vec<(usize, TransportError)>,
    ) {
        while let Some((_, layout, _)) = routed.first() {
            let layout = Arc::clone(layout);
            let its = routed.extract_if(.., |(_, other, _)| Arc::ptr_eq(other, &layout));
            let (positions, rows): (Vec<usize>, Vec<(String, NewRow)>) = its
                .map(|(position, _, row)| (position, (row.queue.to_string(), row)))
                .unzip();
            let work = TableWork::Store(layout, rows);
            match self.engine.ask(|reply| Operation::Table(work, reply)).await {
                Ok(_) => self.engine.tell_tables(),
                Err(failure) => {
                    failures.extend(positions.into_iter().map(|position| (position, failure.clone().into())));
                }
            }
        }
    }
}

/// Says what is wrong with a message.
pub(crate) fn check_message(message: &Outgoing<'_>, max_payload: usize) -> Result<(), TransportError> {
    check_name(message.destination())?;
    let size = message.payload().len() + message.headers().size() + message.key().map_or(0, <[u8]>::len);
    if size > max_payload {
        return Err(TransportError::new(
            ErrorKind::TooLarge,
            format!(
                "a message to {:?} has {size} bytes and the limit is {max_payload}: send less, or raise it with \
                 `.max_payload(..)` of the broker",
                message.destination(),
            ),
        ));
    }
    let Some(options) = message.options::<InboxOptions>() else {
        return Ok(());
    };
    let wrong = |text: String| Err(TransportError::new(ErrorKind::Invalid, text));
    if options.extras.run_at.is_some() && !message.delay().is_zero() {
        return wrong(format!(
            "a message to {:?} has a delay and a time to run at: give it one of them",
            message.destination()
        ));
    }
    match options.extras.unique.as_deref() {
        Some(key) if key.is_empty() || key.len() > LONGEST_UNIQUE_KEY || key.contains('\0') => wrong(format!(
            "a unique key has 1 to {LONGEST_UNIQUE_KEY} bytes and no NUL; that of a message to {:?} has {} bytes",
            message.destination(),
            key.len()
        )),
        _ => Ok(()),
    }
}

impl Publish for SqlxPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        self.store(messages).await.map(drop)
    }
}

/// What became of a message that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stored {
    /// It is in its queue.
    New,
    /// A message with its [unique key](InboxOptions::unique) is in the queue already: this one is not stored.
    Duplicate,
}

impl SqlxPublisher {
    /// Publishes messages and says of each whether it was new. [`publish`](Publish::publish) does the same and does not say.
    ///
    /// # Errors
    ///
    /// Where messages could not be stored; the error says which. A duplicate is none.
    ///
    /// # Cancel safety
    ///
    /// A call dropped before it completes may have stored the messages.
    ///
    /// # Examples
    ///
    /// ```
    /// use ruststream::message::{OptionSet, Outgoing};
    /// use ruststream::transport::{Broker, Connection};
    /// use ruststream_sqlx::{InboxOptions, SqlxBroker, Stored};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("orders.db");
    /// let publisher = SqlxBroker::sqlite(path).connect().await?.publisher();
    /// let mut options = OptionSet::new();
    /// options.insert(InboxOptions::new().unique("order-7"));
    /// let order = Outgoing::new("orders", b"7").with_options(&options);
    /// assert_eq!(publisher.store(&[order]).await?, [Stored::New]);
    /// assert_eq!(publisher.store(&[order]).await?, [Stored::Duplicate]);
    /// # Ok(()) }
    /// ```
    pub async fn store(&self, messages: &[Outgoing<'_>]) -> Result<Vec<Stored>, PublishError> {
        let mut answers = vec![Stored::New; messages.len()];
        let mut failures = Vec::new();
        let mut rows: Vec<NewRow> = Vec::with_capacity(messages.len());
        // Where the messages stand that go on; empty while that is where they stood.
        let mut positions = Vec::new();
        let mut routed: Vec<(usize, Arc<Layout>, NewRow)> = Vec::new();
        for (position, message) in messages.iter().enumerate() {
            let checked = self.check(message);
            let route = self.routes.get(message.destination());
            if checked.is_err() || route.is_some() {
                if failures.is_empty() && routed.is_empty() {
                    positions.extend(0..position);
                }
                match (checked, route) {
                    (Ok(()), Some(layout)) => {
                        let row = new_row(Arc::from(message.destination()), message);
                        routed.push((position, Arc::clone(layout), row));
                    }
                    (Ok(()), None) => {}
                    (Err(error), _) => failures.push((position, error)),
                }
                continue;
            }
            if !failures.is_empty() || !routed.is_empty() {
                positions.push(position);
            }
            let queue = match rows.last() {
                Some(row) if *row.queue == *message.destination() => Arc::clone(&row.queue),
                _ => Arc::from(message.destination()),
            };
            rows.push(new_row(queue, message));
        }
        self.store_routed(routed, &mut failures).await;
        if !rows.is_empty() {
            match self.engine.ask(|reply| Operation::Insert(Insert { rows, reply })).await {
                Ok(inserted) => {
                    let place = |index: usize| positions.get(index).copied().unwrap_or(index);
                    let failed = inserted.failed.into_iter();
                    failures.extend(failed.map(|(index, failure)| (place(index), TransportError::from(failure))));
                    for index in inserted.duplicates {
                        answers[place(index)] = Stored::Duplicate;
                    }
                }
                Err(failure) if failures.is_empty() && positions.is_empty() => {
                    return Err(PublishError::all(failure.into()));
                }
                Err(failure) => {
                    if positions.is_empty() {
                        positions.extend(0..messages.len());
                    }
                    failures.extend(positions.into_iter().map(|position| (position, failure.clone().into())));
                }
            }
        }
        match PublishError::some(failures) {
            Some(error) => Err(error),
            None => Ok(answers),
        }
    }
}

pub(crate) fn new_row(queue: Arc<str>, message: &Outgoing<'_>) -> NewRow {
    let headers = (!message.headers().is_empty()).then(|| {
        let mut block = Vec::with_capacity(message.headers().size() + 8 * message.headers().len());
        message.headers().write_block(&mut block);
        block
    });
    NewRow {
        queue,
        delay: millis(message.delay()),
        key: message.key().map(<[u8]>::to_vec),
        headers,
        payload: message.payload().to_vec(),
        extras: message
            .options::<InboxOptions>()
            .map(|options| Box::new(options.extras.clone())),
    }
}

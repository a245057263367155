//! From settings to a live subscription: broker, connection, source.

use std::any::Any;

use super::{Audience, Capabilities, DeadLetters, Delivery, Fetch, Publish, Routes, Settle, TransportError};

/// The settings of a broker, from which connections are made.
pub trait Broker: Send + Sync + 'static {
    /// What [`connect`](Self::connect) makes.
    type Connection: Connection;
    /// What a subscription by name reads from.
    type Source: Source<Connection = Self::Connection>;

    /// What and where the broker is, for people: `sqlite orders.db`. Never contains a secret.
    fn label(&self) -> String;

    /// The source that a subscription by `name` reads. What is wrong with the name is told by its [`check`](Source::check).
    fn source(&self, name: &str) -> Self::Source;

    /// The source that one client reads the replies to its requests from. `name` is made up for it, and no one else reads it.
    ///
    /// An ordinary [`source`](Self::source) where nothing else is written. A broker that can makes it a place that ends with
    /// the subscription.
    fn reply_source(&self, name: &str) -> Self::Source {
        self.source(name)
    }

    /// Says what is wrong with the settings themselves, without connecting: a wrong URL, a file in no folder. The command
    /// `check` asks for it.
    ///
    /// # Errors
    ///
    /// A permanent one, whose text names what is at fault and the fix.
    fn check(&self) -> Result<(), TransportError> {
        Ok(())
    }

    /// The rules by which the server leads messages to these sources and others that the broker declares, for an app that is
    /// tested without it. Only where they are more than the name of a queue.
    fn routes(&self, sources: &[&dyn Any]) -> Option<Box<dyn Routes>> {
        let _ = sources;
        None
    }

    /// Connects, within a deadline of the broker's own.
    ///
    /// # Errors
    ///
    /// A transient error where the server is absent or busy: the caller tries again. A permanent one where trying again is
    /// useless: a wrong URL, refused credentials, a file that is no database.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, TransportError>> + Send;
}

/// A live connection, shared by the subscriptions and publishers of one app.
///
/// It outlives losses of the link under it: reconnecting is the transport's own duty.
pub trait Connection: Send + Sync + 'static {
    /// What [`publisher`](Self::publisher) hands out.
    type Publisher: Publish;

    /// A publisher on this connection.
    fn publisher(&self) -> Self::Publisher;

    /// Makes one trivial round trip.
    ///
    /// # Errors
    ///
    /// Where the server does not answer within the transport's deadline.
    fn ping(&self) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Closes, after all halves and publishers have been let go. Returns within the transport's deadline.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// What a subscription reads: a table, a stream and its group, a queue, a topic filter.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no source of messages",
    label = "a plain name stands on the handler: `#[subscriber(\"orders\")]`; this is for sources of the broker's crate"
)]
pub trait Source: Send + Sync + 'static {
    /// The connection that it opens on.
    type Connection: Connection;
    /// The half that takes deliveries.
    type Fetch: Fetch;
    /// The half that gives receipts back.
    type Settle: Settle<Receipt = <<Self::Fetch as Fetch>::Delivery as Delivery>::Receipt>;

    /// The name that people know the source by; default dead-letter places derive from it.
    fn name(&self) -> &str;

    /// What the transport does itself for this source.
    fn capabilities(&self) -> Capabilities;

    /// Where dead letters go that the transport does not keep itself and the user names no place for; `<name>.dead` where this is
    /// `None`. Only for names that are no destinations, such as patterns.
    fn dead_letter_place(&self) -> Option<String> {
        None
    }

    /// Says what is wrong with the source itself, so that an app is told before it connects anywhere: an impossible name,
    /// settings at odds. Constructors and setters need no `Result` then.
    ///
    /// # Errors
    ///
    /// A permanent one, whose text names what is at fault and the fix.
    fn check(&self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Who gets its messages beside it, for tests without a server. How messages get from other names to that of the source is told by
    /// the broker's [`routes`](Broker::routes).
    ///
    /// Where nothing else is written, subscriptions of one name get a copy each, and a name with a level `*` or `>` is a pattern, as the
    /// [in-process broker](crate::memory) has it.
    fn audience(&self) -> Option<Audience> {
        None
    }

    /// Makes what the source needs on the server (table, group, queue) and opens both halves.
    ///
    /// # Errors
    ///
    /// Transient ones are tried again by the caller; a permanent one ends the start of the app, so its text names what is at
    /// fault and the fix.
    fn open(
        &self,
        connection: &Self::Connection,
    ) -> impl Future<Output = Result<(Self::Fetch, Self::Settle), TransportError>> + Send;

    /// Begins a walk through the dead letters that the transport itself keeps for this source; `None` where it keeps none that
    /// can be read. It makes nothing on the server. The command `dead-letters` of a service asks for it.
    ///
    /// # Errors
    ///
    /// Where the server does not answer within the transport's deadline.
    fn dead_letters(
        &self,
        connection: &Self::Connection,
    ) -> impl Future<Output = Result<Option<Box<dyn DeadLetters>>, TransportError>> + Send {
        let _ = connection;
        async { Ok(None) }
    }
}

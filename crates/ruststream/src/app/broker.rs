//! One broker of an app with its subscriptions, its type erased once.

#[cfg(feature = "testing")]
use std::any::Any;
use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use super::AppError;
use super::report::Report;
use super::scope::Subscription;
use crate::codec::Codec;
use crate::handler::{Definition, Handler};
use crate::policy::Backoff;
use crate::publish::{Pending, Pool, PublishLayers, Publisher, Replies};
use crate::runtime::{Batch, Settings, Shared, Signals, run};
#[cfg(feature = "cli")]
use crate::transport::DeadLetters;
use crate::transport::{
    Broker, Capabilities, Connection, Delivery, Fetch, Publish, Settle, Source, TransportError, hide_secrets,
};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A handler with its subscription, before it is started.
pub(super) struct Mount<B: Broker> {
    pub(super) subscription: Subscription<B>,
    pub(super) make: Box<dyn FnOnce(Publisher) -> Handler + Send>,
}

/// What a subscription reads.
pub(super) enum SourceChoice<B: Broker> {
    /// The broker's own source for the name on the handler.
    ByName,
    Given(Box<dyn Opener<B::Connection>>),
}

/// A broker with its mounts, behind `dyn`.
pub(super) trait BrokerEntry: Send {
    /// What is wrong with the settings of the broker itself.
    fn check_broker(&self) -> Option<String>;

    /// What is wrong with its subscriptions, each with its fix.
    fn problems(&self) -> Vec<String>;

    /// Notes what each subscription reads and writes.
    fn describe(&self, report: &mut Report);

    /// Connects and opens all subscriptions.
    fn start(self: Box<Self>, how: How) -> BoxFuture<'static, Result<Started, AppError>>;

    /// The names of what the subscriptions read, each once.
    #[cfg(feature = "cli")]
    fn sources(&self) -> Vec<String>;

    /// Connects, and begins a walk through the dead letters of each source named; handles nothing.
    #[cfg(feature = "cli")]
    fn dead_letters(self: Box<Self>, names: Vec<String>, how: How) -> BoxFuture<'static, Result<Walks, AppError>>;

    /// Answers all but the broker, to be put on another.
    #[cfg(feature = "testing")]
    fn leave(self: Box<Self>) -> super::moving::Left;
}

/// How a broker is started.
#[derive(Clone)]
pub(super) struct How {
    pub(super) stop: CancellationToken,
    pub(super) grace: Duration,
    pub(super) fail_fast: bool,
    pub(super) codec: Codec,
}

/// A broker that works.
pub(super) struct Started {
    pub(super) label: String,
    pub(super) publisher: Publisher,
    pub(super) subscriptions: Vec<Opened>,
    pub(super) live: Arc<dyn Live>,
}

/// The dead letters of one source.
#[cfg(feature = "cli")]
pub(super) struct Walk {
    pub(super) source: String,
    /// None where the transport keeps none that can be read.
    pub(super) letters: Option<Box<dyn DeadLetters>>,
    /// Where the subscription has them sent instead.
    pub(super) place: Option<Arc<str>>,
}

/// Walks, and what closes the connection after them.
#[cfg(feature = "cli")]
pub(super) type Walks = (Vec<Walk>, Arc<dyn Live>);

/// The connection of a broker that works, for what comes after the start.
pub(super) trait Live: Send + Sync {
    /// Opens a place for the replies to one client.
    fn open_replies(&self, name: String, pending: Arc<Pending>, how: How) -> BoxFuture<'_, Result<Opened, AppError>>;

    /// Asks the broker whether it is there.
    fn ping(&self) -> BoxFuture<'_, Result<(), TransportError>>;

    /// Closes the connection.
    fn close(&self) -> BoxFuture<'_, ()>;
}

struct Connected<B: Broker> {
    broker: B,
    label: String,
    connection: Arc<B::Connection>,
    publisher: Publisher,
}

impl<B: Broker> Live for Connected<B> {
    fn open_replies(&self, name: String, pending: Arc<Pending>, how: How) -> BoxFuture<'_, Result<Opened, AppError>> {
        Box::pin(async move {
            let Self { label, .. } = self;
            let refused = |error| AppError::broker(format!("cannot open `{name}` for replies on {label}"), error);
            let source = self.broker.reply_source(&name);
            let opening = Opening {
                handler: Replies(pending).into_handler(self.publisher.clone()),
                name_of_handler: "replies",
                settings: Settings::default(),
                signals: Signals::new(how.stop.clone()),
                grace: how.grace,
                pool: self.publisher.pool(),
            };
            source
                .open_and_run(&self.connection, opening, how, label)
                .await
                .map_err(refused)
        })
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(self.connection.ping())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.connection.close())
    }
}

/// A broker with all that is mounted on it.
pub(super) struct Mounts<B: Broker> {
    pub(super) broker: B,
    pub(super) subscriptions: Vec<Mount<B>>,
    pub(super) publish_layers: PublishLayers,
}

impl<B: Broker> Mounts<B> {
    /// Mounts a handler: the part that is compiled once and not for each handler.
    pub(super) fn mount(
        &mut self,
        prefix: &str,
        codec: Option<Codec>,
        mut definition: Definition,
        make: Box<dyn FnOnce(Publisher) -> Handler + Send>,
    ) -> &mut Subscription<B> {
        if !prefix.is_empty() {
            definition.name = Cow::Owned(format!("{prefix}{}", definition.name));
        }
        let settings = Settings {
            batch: definition.batch.then(Batch::default),
            ..Settings::default()
        };
        self.subscriptions.push(Mount {
            subscription: Subscription {
                definition,
                source: SourceChoice::ByName,
                settings,
                codec,
            },
            make,
        });
        let last = self.subscriptions.len() - 1;
        &mut self.subscriptions[last].subscription
    }
}

#[cfg(feature = "testing")]
impl<B: Broker> Mount<B> {
    /// The broker's own source for its name, where none was given.
    fn by_name(&self, broker: &B) -> Option<B::Source> {
        let Subscription { definition, source, .. } = &self.subscription;
        matches!(source, SourceChoice::ByName).then(|| broker.source(&definition.name))
    }
}

impl<B: Broker> BrokerEntry for Mounts<B> {
    #[cfg(feature = "testing")]
    fn leave(self: Box<Self>) -> super::moving::Left {
        let by_name: Vec<_> = self
            .subscriptions
            .iter()
            .map(|mount| mount.by_name(&self.broker))
            .collect();
        let sources: Vec<_> = self
            .subscriptions
            .iter()
            .zip(&by_name)
            .filter_map(|(mount, by_name)| match &mount.subscription.source {
                SourceChoice::Given(opener) => Some(opener.any()),
                SourceChoice::ByName => by_name.as_ref().map(|source| source as &dyn Any),
            })
            .collect();
        super::moving::Left {
            label: label_of(&self.broker),
            routes: self.broker.routes(&sources),
            homeless: self
                .subscriptions
                .into_iter()
                .map(|mount| super::moving::Homeless::of(mount, &self.broker))
                .collect(),
            publish_layers: self.publish_layers,
        }
    }

    fn check_broker(&self) -> Option<String> {
        let error = self.broker.check().err()?;
        Some(format!("{}: {error}", label_of(&self.broker)))
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (position, Mount { subscription, .. }) in self.subscriptions.iter().enumerate() {
            let Subscription { definition, source, .. } = subscription;
            let mut note = |problem: String| {
                problems.push(format!(
                    "`{}` on {}, subscription `{}`: {problem}",
                    definition.handler,
                    label_of(&self.broker),
                    definition.name
                ));
            };
            subscription.problem().into_iter().for_each(&mut note);
            let checked = match source {
                SourceChoice::Given(opener) => Opener::check(&**opener),
                SourceChoice::ByName => Source::check(&self.broker.source(&definition.name)),
            };
            checked
                .err()
                .map(|error| error.to_string())
                .into_iter()
                .for_each(&mut note);
            let reads_it_too = |other: &&Mount<B>| {
                let other = &other.subscription;
                matches!((source, &other.source), (SourceChoice::ByName, SourceChoice::ByName))
                    && other.definition.name == definition.name
            };
            if let Some(other) = self.subscriptions[..position].iter().find(reads_it_too) {
                note(format!(
                    "`{}` reads the same name, so each message would go to one of the two by chance; give them different names, or one \
                     of them `.workers(2)`",
                    other.subscription.definition.handler
                ));
            }
        }
        problems
    }

    fn describe(&self, report: &mut Report) {
        let label = label_of(&self.broker);
        for Mount { subscription, .. } in &self.subscriptions {
            let Subscription {
                definition,
                source,
                settings,
                codec: _,
            } = subscription;
            let name = match source {
                SourceChoice::Given(opener) => opener.name(),
                SourceChoice::ByName => &definition.name,
            };
            report.reads(&label, name, definition.handler);
            if let Some(reply) = definition.reply {
                report.writes(reply, format!("the replies of `{}`", definition.handler));
            }
            if let Some(place) = &settings.dead_letter {
                report.writes(place, format!("the dead letters of `{}`", definition.handler));
            }
            let reply = definition.reply.map(|reply| format!(" -> {reply}")).unwrap_or_default();
            report.lines.push(format!(
                "{label}: {name} -> {}{reply} (workers {})",
                definition.handler, settings.workers
            ));
        }
    }

    #[cfg(feature = "cli")]
    fn sources(&self) -> Vec<String> {
        let mut names = Vec::new();
        for Subscription { definition, source, .. } in self.subscriptions.iter().map(|mount| &mount.subscription) {
            let name = match source {
                SourceChoice::Given(opener) => opener.name(),
                SourceChoice::ByName => &definition.name,
            };
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    #[cfg(feature = "cli")]
    fn dead_letters(self: Box<Self>, mut names: Vec<String>, how: How) -> BoxFuture<'static, Result<Walks, AppError>> {
        Box::pin(async move {
            let label = label_of(&self.broker);
            let connection = connect(&self.broker, &label, &how).await?;
            let mut walks = Vec::new();
            for Mount { subscription, .. } in self.subscriptions {
                let opener = subscription.source.of(&self.broker, &subscription.definition.name);
                let Some(place) = names.iter().position(|name| name == opener.name()) else {
                    continue;
                };
                let source = names.remove(place);
                let letters = opener
                    .dead_letters(&connection)
                    .await
                    .map_err(|error| AppError::broker(format!("the dead letters of `{source}` on {label}"), error))?;
                let place = subscription.settings.dead_letter;
                walks.push(Walk { source, letters, place });
            }
            let publisher = Publisher::new(connection.publisher(), how.codec, PublishLayers::default());
            let live: Arc<dyn Live> = Arc::new(Connected {
                broker: self.broker,
                label,
                connection,
                publisher,
            });
            Ok((walks, live))
        })
    }

    fn start(self: Box<Self>, how: How) -> BoxFuture<'static, Result<Started, AppError>> {
        Box::pin(async move {
            let Self {
                broker,
                subscriptions: mounts,
                publish_layers,
            } = *self;
            let label = label_of(&broker);
            let connection = connect(&broker, &label, &how).await?;
            let erased = Publisher::new(connection.publisher(), how.codec.clone(), publish_layers);
            tracing::info!(broker = label, subscriptions = mounts.len(), "connected");

            let mut subscriptions = Vec::new();
            for Mount { subscription, make } in mounts {
                let Subscription {
                    definition,
                    source,
                    mut settings,
                    codec,
                } = subscription;
                let opener = source.of(&broker, &definition.name);
                let name: Arc<str> = opener.name().into();
                let publisher = match codec {
                    Some(codec) => erased.with_codec(codec),
                    None => erased.clone(),
                };
                settings.ordered_by = settings.ordered_by.map(|order| order.with_codec(publisher.codec()));
                let opening = Opening {
                    handler: make(publisher),
                    name_of_handler: definition.handler,
                    settings,
                    signals: Signals::new(how.stop.child_token()),
                    grace: how.grace,
                    pool: erased.pool(),
                };
                let running = opener
                    .open_and_run(&connection, opening, how.clone(), &label)
                    .await
                    .map_err(|error| AppError::broker(format!("cannot open `{name}` on {label}"), error))?;
                subscriptions.push(running);
            }
            Ok(Started {
                label: label.clone(),
                publisher: erased.clone(),
                subscriptions,
                live: Arc::new(Connected {
                    broker,
                    label,
                    connection,
                    publisher: erased,
                }),
            })
        })
    }
}

impl<B: Broker> SourceChoice<B> {
    fn of(self, broker: &B, name: &str) -> Box<dyn Opener<B::Connection>> {
        match self {
            Self::Given(opener) => opener,
            Self::ByName => Box::new(broker.source(name)),
        }
    }
}

async fn connect<B: Broker>(broker: &B, label: &str, how: &How) -> Result<Arc<B::Connection>, AppError> {
    let connection = insistently(how, || broker.connect(), || format!("{label} is not there"))
        .await
        .map_err(|error| AppError::broker(format!("cannot connect to {label}"), error))?;
    Ok(Arc::new(connection))
}

/// What and where a broker is, for people. It may be made of a URL that was given to the wrong broker.
fn label_of(broker: &impl Broker) -> String {
    hide_secrets(broker.label())
}

/// Tries until it succeeds or fails for good; an error that may pass ends it only where the app fails fast.
async fn insistently<T, Fut>(
    how: &How,
    attempt: impl Fn() -> Fut,
    what: impl Fn() -> String,
) -> Result<T, TransportError>
where
    Fut: Future<Output = Result<T, TransportError>>,
{
    let backoff = Backoff::exponential(Duration::from_millis(200)).cap(Duration::from_secs(5));
    let mut failures = 0u32;
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if how.fail_fast || !error.is_transient() {
            return Err(error);
        }
        failures = failures.saturating_add(1);
        let wait = backoff.ceiling(failures) / 2 + backoff.delay(failures, fastrand::f64()) / 2;
        tracing::warn!(error = crate::runtime::chain(&error), ?wait, "{}; trying again", what());
        sleep(wait).await;
    }
}

/// What a subscription needs to run, beside its source.
pub(super) struct Opening {
    handler: Handler,
    name_of_handler: &'static str,
    settings: Settings,
    signals: Signals,
    grace: Duration,
    pool: Arc<Pool>,
}

/// A subscription with the future that runs it.
pub(super) type Opened = (Arc<Shared>, BoxFuture<'static, ()>);

/// [`Source`] behind `dyn`.
pub(super) trait Opener<C: Connection>: Send + Sync {
    fn name(&self) -> &str;

    fn check(&self) -> Result<(), TransportError>;

    /// The source itself.
    #[cfg(feature = "testing")]
    fn any(&self) -> &dyn Any;

    /// Who gets its messages beside it.
    #[cfg(feature = "testing")]
    fn audience(&self) -> Option<crate::transport::Audience>;

    /// Begins a walk through the dead letters that the transport keeps.
    #[cfg(feature = "cli")]
    fn dead_letters<'a>(
        &'a self,
        connection: &'a C,
    ) -> BoxFuture<'a, Result<Option<Box<dyn DeadLetters>>, TransportError>>;

    /// Opens the source on the broker of this label, and answers the subscription with the future that runs it.
    fn open_and_run<'a>(
        &'a self,
        connection: &'a C,
        opening: Opening,
        how: How,
        label: &'a str,
    ) -> BoxFuture<'a, Result<Opened, TransportError>>;
}

impl<Src: Source> Opener<Src::Connection> for Src {
    fn name(&self) -> &str {
        Source::name(self)
    }

    #[cfg(feature = "testing")]
    fn audience(&self) -> Option<crate::transport::Audience> {
        Source::audience(self)
    }

    fn check(&self) -> Result<(), TransportError> {
        Source::check(self)
    }

    #[cfg(feature = "testing")]
    fn any(&self) -> &dyn Any {
        self
    }

    #[cfg(feature = "cli")]
    fn dead_letters<'a>(
        &'a self,
        connection: &'a Src::Connection,
    ) -> BoxFuture<'a, Result<Option<Box<dyn DeadLetters>>, TransportError>> {
        Box::pin(Source::dead_letters(self, connection))
    }

    fn open_and_run<'a>(
        &'a self,
        connection: &'a Src::Connection,
        mut opening: Opening,
        how: How,
        label: &'a str,
    ) -> BoxFuture<'a, Result<Opened, TransportError>> {
        if opening.settings.dead_letter.is_none() {
            opening.settings.dead_letter = self.dead_letter_place().map(Into::into);
        }
        Box::pin(async move {
            let waiting = || format!("`{}` on {label} cannot be opened", Source::name(self));
            let (fetch, settle) = insistently(&how, || self.open(connection), waiting).await?;
            Ok(prepare(
                self.capabilities(),
                Source::name(self),
                fetch,
                settle,
                connection.publisher(),
                opening,
            ))
        })
    }
}

fn prepare<F, S, P>(
    capabilities: Capabilities,
    name: &str,
    fetch: F,
    settle: S,
    publisher: P,
    opening: Opening,
) -> Opened
where
    F: Fetch,
    S: Settle<Receipt = <F::Delivery as Delivery>::Receipt>,
    P: Publish,
{
    let Opening {
        handler,
        name_of_handler,
        settings,
        signals,
        grace,
        pool,
    } = opening;
    let shared = Arc::new(Shared::new(
        name.into(),
        name_of_handler,
        settings,
        capabilities,
        signals,
        pool,
    ));
    (
        shared.clone(),
        Box::pin(run(fetch, settle, publisher, handler, shared, grace)),
    )
}

//! Putting the subscriptions of an app on other brokers than its own, as a test does.

use std::sync::Arc;

use super::RustStream;
use super::broker::{Mount, Mounts, SourceChoice};
use super::scope::Subscription;
use crate::codec::Codec;
use crate::handler::{Definition, Handler};
use crate::publish::{PublishLayers, Publisher};
use crate::runtime::{Observer, Settings};
use crate::transport::{Audience, Broker, Routes, Source as _};

/// A broker that is left, with those who leave it.
pub(crate) struct Leaving {
    pub(crate) label: String,
    /// How its server leads messages.
    pub(crate) routes: Option<Box<dyn Routes>>,
    pub(crate) subscriptions: Vec<Reader>,
    /// The codec of the app.
    pub(crate) codec: Codec,
}

/// A subscription that leaves.
pub(crate) struct Reader {
    /// What it reads.
    pub(crate) name: Arc<str>,
    pub(crate) handler: &'static str,
    /// Who gets its messages beside it, where its source says so.
    pub(crate) audience: Option<Audience>,
}

/// Where subscriptions go.
pub(crate) struct Arriving<B: Broker> {
    pub(crate) broker: B,
    /// What each subscription reads from now on, and who looks on; in the order of leaving.
    pub(crate) seats: Vec<(B::Source, Arc<dyn Observer>)>,
}

/// A broker that is left, with all that is carried to another.
pub(super) struct Left {
    pub(super) label: String,
    pub(super) routes: Option<Box<dyn Routes>>,
    pub(super) homeless: Vec<Homeless>,
    pub(super) publish_layers: PublishLayers,
}

/// A subscription without a broker.
pub(super) struct Homeless {
    definition: Definition,
    name: Arc<str>,
    audience: Option<Audience>,
    settings: Settings,
    codec: Option<Codec>,
    make: Box<dyn FnOnce(Publisher) -> Handler + Send>,
}

impl Homeless {
    pub(super) fn of<B: Broker>(mount: Mount<B>, broker: &B) -> Self {
        let Subscription {
            definition,
            source,
            settings,
            codec,
        } = mount.subscription;
        let (name, audience) = match &source {
            SourceChoice::Given(opener) => (opener.name().into(), opener.audience()),
            SourceChoice::ByName => {
                let name = Arc::from(&*definition.name);
                let audience = broker.source(&definition.name).audience();
                (name, audience)
            }
        };
        Self {
            definition,
            name,
            audience,
            settings,
            codec,
            make: mount.make,
        }
    }
}

impl RustStream {
    /// Puts every subscription on another broker, in place of its own; the rest of the app stays as it is.
    pub(crate) fn move_to<B: Broker>(&mut self, mut find: impl FnMut(Leaving) -> Arriving<B>) {
        for left in std::mem::take(&mut self.brokers) {
            let Left {
                label,
                routes,
                homeless,
                publish_layers,
            } = left.leave();
            let subscriptions = homeless.iter().map(|one| Reader {
                name: one.name.clone(),
                handler: one.definition.handler,
                audience: one.audience.clone(),
            });
            let Arriving { broker, seats } = find(Leaving {
                label,
                routes,
                subscriptions: subscriptions.collect(),
                codec: self.options.codec.clone(),
            });
            let mounts = homeless.into_iter().zip(seats).map(|(one, (source, observer))| Mount {
                subscription: Subscription {
                    definition: one.definition,
                    source: SourceChoice::Given(Box::new(source)),
                    settings: Settings {
                        observer: Some(observer),
                        ..one.settings
                    },
                    codec: one.codec,
                },
                make: one.make,
            });
            self.brokers.push(Box::new(Mounts {
                broker,
                subscriptions: mounts.collect(),
                publish_layers,
            }));
        }
    }
}

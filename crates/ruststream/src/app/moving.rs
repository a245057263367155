//! Putting the subscriptions of an app on other brokers than its own, as a test does.

use std::sync::Arc;

use super::RustStream;
use super::broker::{Mount, Mounts, SourceChoice};
use super::scope::Subscription;
use crate::codec::Codec;
use crate::handler::{Definition, Handler};
use crate::publish::{PublishLayers, Publisher};
use crate::runtime::{Observer, Settings};
use crate::transport::{Broker, Routes};

/// A broker that is left, with those who leave it.
pub(crate) struct Leaving {
    pub(crate) label: String,
    /// How its server leads messages.
    pub(crate) routes: Option<Box<dyn Routes>>,
    /// What each subscription reads, and the name of its handler.
    pub(crate) subscriptions: Vec<(Arc<str>, &'static str)>,
    /// The codec of the app.
    pub(crate) codec: Codec,
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
    settings: Settings,
    codec: Option<Codec>,
    make: Box<dyn FnOnce(Publisher) -> Handler + Send>,
}

impl<B: Broker> From<Mount<B>> for Homeless {
    fn from(mount: Mount<B>) -> Self {
        let Subscription {
            definition,
            source,
            settings,
            codec,
        } = mount.subscription;
        let name = match &source {
            SourceChoice::Given(opener) => opener.name().into(),
            SourceChoice::ByName => Arc::from(&*definition.name),
        };
        Self {
            definition,
            name,
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
            let subscriptions = homeless.iter().map(|one| (one.name.clone(), one.definition.handler));
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

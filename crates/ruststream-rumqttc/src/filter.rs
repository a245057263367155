//! What a subscription reads: a filter of topics.

use std::sync::Arc;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::RetainForwardRule;
use ruststream::transport::{Capabilities, Source, TransportError};
use tokio::sync::Notify;

use crate::connection::MqttConnection;
use crate::fetch::{MqttFetch, Subscription};
use crate::filters::{Standing, Wanted};
use crate::settle::MqttSettle;
use crate::topic;

/// A filter of topics, with wildcards or without: `orders/new`, `devices/+/state`, `logs/#`.
///
/// # Examples
///
/// ```
/// use ruststream_rumqttc::{QoS, RetainForwardRule, TopicFilter};
///
/// let states = TopicFilter::new("devices/+/state").quality(QoS::ExactlyOnce).retained(RetainForwardRule::Never);
/// // One of all services of this group gets each message:
/// let orders = TopicFilter::new("orders/#").group("billing");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFilter {
    /// Without the group.
    name: String,
    group: Option<String>,
    wanted: Wanted,
}

impl TopicFilter {
    /// All messages of the topics that match. `$share/group/filter` is a filter with a [`group`](Self::group).
    pub fn new(filter: impl Into<String>) -> Self {
        let given = filter.into();
        let (group, name) = topic::split_group(&given);
        Self {
            name: name.to_owned(),
            group: group.map(str::to_owned),
            wanted: Wanted {
                path: given,
                quality: QoS::AtLeastOnce,
                no_local: false,
                retain_as_published: false,
                retained: RetainForwardRule::OnEverySubscribe,
            },
        }
    }

    /// Sets the highest quality of service that messages are delivered with; [`QoS::AtLeastOnce`] unless set. A message is never
    /// delivered with more than it was published with.
    #[must_use]
    pub fn quality(mut self, quality: QoS) -> Self {
        self.wanted.quality = quality;
        self
    }

    /// Shares the messages among all subscriptions on the same filter in the same group: each goes to one of them.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        let group = group.into();
        self.wanted.path = topic::join_group(&group, &self.name);
        self.group = Some(group);
        self
    }

    /// Leaves out what this connection publishes itself. Not for groups.
    #[must_use]
    pub fn no_local(mut self) -> Self {
        self.wanted.no_local = true;
        self
    }

    /// Keeps the mark *retained* as the publisher set it; otherwise only those bear it that were kept for later subscriptions.
    #[must_use]
    pub fn retain_as_published(mut self) -> Self {
        self.wanted.retain_as_published = true;
        self
    }

    /// Sets which retained messages come when the subscription is made; all unless set.
    #[must_use]
    pub fn retained(mut self, rule: RetainForwardRule) -> Self {
        self.wanted.retained = rule;
        self
    }
}

impl Source for TopicFilter {
    type Connection = MqttConnection;
    type Fetch = MqttFetch;
    type Settle = MqttSettle;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    fn check(&self) -> Result<(), TransportError> {
        topic::check_filter("the filter", &self.name)?;
        if let Some(group) = &self.group {
            topic::check_group(group)?;
            if self.wanted.no_local {
                let text = format!(
                    "the filter `{}` has a group and leaves out its own messages; MQTT has no such thing: leave out `no_local`",
                    self.name
                );
                return Err(TransportError::new(ruststream::transport::ErrorKind::Invalid, text));
            }
        }
        Ok(())
    }

    async fn open(&self, connection: &MqttConnection) -> Result<(MqttFetch, MqttSettle), TransportError> {
        self.check()?;
        let shared = connection.shared();
        shared.up().await?;
        let notify = Arc::new(Notify::new());
        let subscription = {
            let mut state = shared.state();
            let filter = state.inbound.filters.want(&self.wanted);
            let number = state.inbound.open(filter, notify.clone());
            Arc::new(Subscription {
                shared: shared.clone(),
                filter,
                number,
                notify,
                name: self.name.clone(),
            })
        };
        shared.work.notify_one();
        let what = format!("the subscription `{}`", self.wanted.path);
        let epoch = shared
            .wait_for(&what, |state, _| match state.standing(subscription.filter) {
                Standing::Made => Some(Ok(state.epoch)),
                Standing::Failed(failure) => Some(Err(failure.into())),
                Standing::Pending => None,
            })
            .await?;
        Ok((
            MqttFetch::new(subscription.clone(), epoch),
            MqttSettle::new(subscription),
        ))
    }
}

//! What a subscription reads: a filter of topics.

use std::sync::Arc;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::RetainForwardRule;
use ruststream::transport::{Audience, Capabilities, ErrorKind, Source, TransportError};
use tokio::sync::Notify;

use crate::connection::MqttConnection;
use crate::fetch::{MqttFetch, Subscription};
use crate::filters::{Standing, Wanted};
use crate::settle::MqttSettle;
use crate::topic;
use crate::wire::MqttVersion;

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

impl TopicFilter {
    /// What the old version cannot do.
    fn check_old(&self) -> Result<(), TransportError> {
        let wanted = &self.wanted;
        let asked = [
            (wanted.no_local, "no_local"),
            (wanted.retain_as_published, "retain_as_published"),
            (wanted.retained != RetainForwardRule::OnEverySubscribe, "retained"),
        ];
        match asked.iter().find(|(asked, _)| *asked) {
            None => Ok(()),
            Some((_, setting)) => {
                let text = format!(
                    "the filter `{}` is set to .{setting}(..), which MQTT 3.1.1 does not have: leave it out, or speak MQTT 5 with the server",
                    self.name
                );
                Err(TransportError::new(ErrorKind::Invalid, text))
            }
        }
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

    fn audience(&self) -> Option<Audience> {
        let audience = match &self.group {
            Some(group) => Audience::group(group.as_str()),
            None => Audience::each(),
        };
        let is_pattern = self.name.contains(['+', '#']);
        Some(if is_pattern {
            audience.by_pattern(topic::matches)
        } else {
            audience
        })
    }

    fn dead_letter_place(&self) -> Option<String> {
        topic::place_beside(&self.name)
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
                return Err(TransportError::new(ErrorKind::Invalid, text));
            }
        }
        Ok(())
    }

    async fn open(&self, connection: &MqttConnection) -> Result<(MqttFetch, MqttSettle), TransportError> {
        self.check()?;
        let shared = connection.shared();
        if shared.settings.version == MqttVersion::V3_1_1 {
            self.check_old()?;
        }
        shared.up().await?;
        let notify = Arc::new(Notify::new());
        let subscription = {
            let mut state = shared.state();
            if shared.settings.version == MqttVersion::V3_1_1
                && let Some(other) = state.inbound.filters.in_the_way(&self.wanted.path)
            {
                let text = format!(
                    "`{}` and `{other}` have topics in common, and one of them is shared; MQTT 3.1.1 does not tell which of them a message \
                     is for: mount one of them on a broker of its own, or speak MQTT 5 with the server",
                    self.wanted.path
                );
                return Err(TransportError::new(ErrorKind::Invalid, text));
            }
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

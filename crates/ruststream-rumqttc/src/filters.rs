//! What is subscribed to on the server, and to which subscriptions of this process a message goes.

use std::collections::HashMap;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Filter, Publish, RetainForwardRule};

use crate::error::Failure;
use crate::topic;

/// What a subscription asks of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// With the `$share/group/` before it.
    pub(crate) path: String,
    pub(crate) quality: QoS,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) retained: RetainForwardRule,
}

/// Where a message goes.
pub(crate) enum Route {
    To(u32),
    /// To the next that opens on this filter, or on one that it matches.
    Park(Option<u32>),
}

/// One filter of the session. Subscriptions of this process on the same filter are one to the server.
struct Entry {
    wanted: Wanted,
    shared: bool,
    members: Vec<u32>,
    /// Whose turn it is, where they share.
    next: usize,
    made: Made,
}

#[derive(Debug)]
enum Made {
    /// To be asked of the server.
    No,
    Asked(u16),
    Yes,
    Failed(Failure),
}

/// What became of a subscription.
pub(crate) enum Standing {
    Pending,
    Made,
    Failed(Failure),
}

/// By their subscription identifier.
#[derive(Default)]
pub(crate) struct Filters {
    entries: HashMap<u32, Entry>,
    /// The numbers of those without wildcards, by the topic that they are, and of the others: for messages that come without numbers.
    exact: HashMap<String, Vec<u32>>,
    wild: Vec<u32>,
    /// Filters to be taken back.
    dropped: Vec<String>,
}

impl Filters {
    /// The number of a filter, the same in each process: so messages that waited for an earlier one find their way.
    ///
    /// Subscription identifiers are 1 to 268,435,455: section 3.8.2.1.2.
    fn number(&self, path: &str) -> u32 {
        let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut number = ((hash ^ (hash >> 28)) & 0x0fff_ffff) as u32;
        loop {
            number = number.max(1);
            match self.entries.get(&number) {
                Some(entry) if entry.wanted.path != path => number = (number + 1) & 0x0fff_ffff,
                _ => return number,
            }
        }
    }

    /// Adds a filter if it is not there, at the highest quality that anyone asked for.
    pub(crate) fn want(&mut self, wanted: &Wanted) -> u32 {
        let number = self.number(&wanted.path);
        self.dropped.retain(|path| *path != wanted.path);
        if !self.entries.contains_key(&number) {
            let name = topic::split_group(&wanted.path).1;
            if name.contains(['+', '#']) {
                self.wild.push(number);
            } else {
                self.exact.entry(name.to_owned()).or_default().push(number);
            }
        }
        let entry = self.entries.entry(number).or_insert_with(|| Entry {
            wanted: wanted.clone(),
            shared: topic::split_group(&wanted.path).0.is_some(),
            members: Vec::new(),
            next: 0,
            made: Made::No,
        });
        let mut merged = wanted.clone();
        if !entry.members.is_empty() && entry.wanted.quality as u8 > merged.quality as u8 {
            merged.quality = entry.wanted.quality;
        }
        if entry.wanted != merged || matches!(entry.made, Made::Failed(_)) {
            entry.wanted = merged;
            entry.made = Made::No;
        }
        number
    }

    /// A filter that a topic of this one is for too, where one of them has a group: without subscription identifiers nobody could tell
    /// of a message to which of the two it goes.
    pub(crate) fn in_the_way(&self, path: &str) -> Option<&str> {
        let (group, filter) = topic::split_group(path);
        let others = self.entries.values().filter(|entry| entry.wanted.path != path);
        others
            .filter(|entry| entry.shared || group.is_some())
            .find(|entry| topic::overlap(topic::split_group(&entry.wanted.path).1, filter))
            .map(|entry| entry.wanted.path.as_str())
    }

    pub(crate) fn join(&mut self, filter: u32, subscription: u32) {
        if let Some(entry) = self.entries.get_mut(&filter) {
            entry.members.push(subscription);
        }
    }

    pub(crate) fn leave(&mut self, filter: u32, subscription: u32) {
        if let Some(entry) = self.entries.get_mut(&filter) {
            entry.members.retain(|member| *member != subscription);
        }
    }

    /// Takes a filter back that nobody reads any more.
    pub(crate) fn drop_unread(&mut self, filter: u32) {
        if self.entries.get(&filter).is_some_and(|entry| entry.members.is_empty())
            && let Some(entry) = self.entries.remove(&filter)
        {
            self.wild.retain(|known| *known != filter);
            let name = topic::split_group(&entry.wanted.path).1;
            if let Some(numbers) = self.exact.get_mut(name) {
                numbers.retain(|known| *known != filter);
                if numbers.is_empty() {
                    self.exact.remove(name);
                }
            }
            self.dropped.push(entry.wanted.path);
        }
    }

    pub(crate) fn standing(&self, filter: u32) -> Standing {
        match self.entries.get(&filter).map(|entry| &entry.made) {
            Some(Made::Yes) => Standing::Made,
            Some(Made::Failed(failure)) => Standing::Failed(failure.clone()),
            _ => Standing::Pending,
        }
    }

    pub(crate) fn matches(&self, filter: u32, name: &str) -> bool {
        let entry = self.entries.get(&filter);
        entry.is_some_and(|entry| topic::matches(topic::split_group(&entry.wanted.path).1, name))
    }

    /// A filter that has to be asked for, with its number.
    pub(crate) fn next_to_ask(&mut self, packet_id: impl FnOnce() -> Option<u16>) -> Option<(u16, u32, Filter)> {
        let (number, entry) = self
            .entries
            .iter_mut()
            .find(|(_, entry)| matches!(entry.made, Made::No))?;
        let packet_id = packet_id()?;
        entry.made = Made::Asked(packet_id);
        let wanted = &entry.wanted;
        let filter = Filter {
            path: wanted.path.clone(),
            qos: wanted.quality,
            nolocal: wanted.no_local,
            preserve_retain: wanted.retain_as_published,
            retain_forward_rule: wanted.retained.clone(),
        };
        Some((packet_id, *number, filter))
    }

    pub(crate) fn next_to_drop(&mut self) -> Option<String> {
        self.dropped.pop()
    }

    /// The server has answered; which filter it was.
    pub(crate) fn answered(
        &mut self,
        packet_id: u16,
        outcome: impl FnOnce(&str) -> Result<(), Failure>,
    ) -> Option<u32> {
        let asked = |entry: &Entry| matches!(entry.made, Made::Asked(asked) if asked == packet_id);
        let (number, entry) = self.entries.iter_mut().find(|(_, entry)| asked(entry))?;
        entry.made = match outcome(&entry.wanted.path) {
            Ok(()) => Made::Yes,
            Err(failure) => Made::Failed(failure),
        };
        Some(*number)
    }

    /// A new link; what the server forgot is asked for again.
    pub(crate) fn link_made(&mut self, session_present: bool) {
        for entry in self.entries.values_mut() {
            if !session_present || matches!(entry.made, Made::Asked(_)) {
                entry.made = Made::No;
            }
        }
    }

    /// Each subscription that gets the message.
    pub(crate) fn route(&mut self, publish: &Publish, routes: &mut Vec<Route>) {
        let numbers = publish
            .properties
            .as_ref()
            .map_or(&[][..], |properties| &properties.subscription_identifiers);
        for number in numbers {
            let number = u32::try_from(*number).unwrap_or_default();
            match self.entries.get_mut(&number) {
                Some(entry) => entry.route(number, routes),
                None => routes.push(Route::Park(Some(number))),
            }
        }
        if numbers.is_empty() {
            let name = std::str::from_utf8(&publish.topic).unwrap_or_default();
            let Self {
                entries, exact, wild, ..
            } = self;
            for number in exact.get(name).into_iter().flatten().chain(wild.iter()) {
                if let Some(entry) = entries.get_mut(number)
                    && topic::matches(topic::split_group(&entry.wanted.path).1, name)
                {
                    entry.route(*number, routes);
                }
            }
            if routes.is_empty() {
                routes.push(Route::Park(None));
            }
        }
    }
}

impl Entry {
    fn route(&mut self, number: u32, routes: &mut Vec<Route>) {
        if self.members.is_empty() {
            routes.push(Route::Park(Some(number)));
        } else if self.shared {
            self.next = (self.next + 1) % self.members.len();
            routes.push(Route::To(self.members[self.next]));
        } else {
            routes.extend(self.members.iter().map(|member| Route::To(*member)));
        }
    }
}

//! From the name that a message is published to, to the queues that get it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::dead::Shelf;
use super::store::{Kind, Store};
use crate::transport::audience::{Audience, Matches, Share};
use crate::transport::{ErrorKind, TransportError};

/// Routes kept before all are forgotten: names that only patterns match may be without number.
const KEPT_ROUTES: usize = 1024;

/// The queues that a name leads to.
pub(super) struct Route {
    pub(super) destination: Arc<str>,
    /// In the order of their ids.
    pub(super) stores: Vec<Arc<Store>>,
}

/// All queues of a broker.
#[derive(Default)]
pub(super) struct Directory {
    queues: HashMap<Arc<str>, Arc<Store>>,
    patterns: HashMap<Arc<str>, Arc<Store>>,
    /// Those of one subscription, and those of groups.
    broadcasts: HashMap<Arc<str>, Vec<Arc<Store>>>,
    /// As `broadcasts`, of names that match as another broker has it.
    matchers: Vec<(Matches, Arc<Store>)>,
    shelves: HashMap<Arc<str>, Arc<Shelf>>,
    routes: HashMap<Arc<str>, Arc<Route>>,
    /// Counts how often the routes were forgotten, for those who keep one.
    version: Arc<AtomicU64>,
    next_id: u64,
}

impl Directory {
    /// A number that is another once a route may lead elsewhere.
    pub(super) fn version(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.version)
    }

    fn forget_routes(&mut self) {
        self.routes.clear();
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// The route of a name; made on first use, with the queue where nothing else matches.
    pub(super) fn route(&mut self, destination: &str, capacity: usize) -> Result<Arc<Route>, TransportError> {
        if let Some(route) = self.routes.get(destination) {
            return Ok(Arc::clone(route));
        }
        check_destination(destination)?;
        let mut stores: Vec<_> = self
            .patterns
            .values()
            .filter(|store| matches(&store.name, destination))
            .chain(self.broadcasts.get(destination).into_iter().flatten())
            .chain(self.matching(destination))
            .cloned()
            .collect();
        match self.queues.get(destination) {
            Some(queue) if stores.is_empty() || queue.lock().opened => stores.push(Arc::clone(queue)),
            None if stores.is_empty() => stores.push(self.queue(destination, capacity)),
            _ => {}
        }
        stores.sort_by_key(|store| store.id);
        let name: Arc<str> = match &stores[..] {
            [only] if *only.name == *destination => Arc::clone(&only.name),
            _ => Arc::from(destination),
        };
        let route = Arc::new(Route {
            destination: Arc::clone(&name),
            stores,
        });
        if self.routes.len() >= KEPT_ROUTES {
            self.routes.clear();
        }
        self.routes.insert(name, Arc::clone(&route));
        Ok(route)
    }

    /// The queue or the pattern of this text, made if it is not there.
    pub(super) fn queue(&mut self, text: &str, capacity: usize) -> Arc<Store> {
        if let Some(store) = self.find(text) {
            return store;
        }
        let kind = if is_pattern(text) { Kind::Pattern } else { Kind::Queue };
        let store = self.new_store(kind, text, capacity);
        let known = if is_pattern(text) {
            &mut self.patterns
        } else {
            &mut self.queues
        };
        known.insert(Arc::clone(&store.name), Arc::clone(&store));
        store
    }

    /// A queue of its own for one subscription.
    pub(super) fn broadcast(&mut self, name: &str, capacity: usize) -> Arc<Store> {
        let store = self.new_store(Kind::Broadcast, name, capacity);
        let known = self.broadcasts.entry(Arc::clone(&store.name)).or_default();
        known.push(Arc::clone(&store));
        store
    }

    /// The copy of a subscription with this audience: one of its own, or that of its group, made if it is not there.
    pub(super) fn copy(&mut self, name: &str, audience: &Audience, capacity: usize) -> Arc<Store> {
        let kind = match &audience.share {
            Share::Each => Kind::Broadcast,
            Share::Group(group) => Kind::Group(Arc::clone(group)),
        };
        let named = self.broadcasts.get(name).into_iter().flatten();
        let matching = self.matchers.iter().map(|(_, store)| store);
        let mut known = named.chain(matching);
        let same = |store: &&Arc<Store>| kind != Kind::Broadcast && store.kind == kind && *store.name == *name;
        if let Some(store) = known.find(same) {
            return Arc::clone(store);
        }
        let store = self.new_store(kind, name, capacity);
        if let Some(matches) = audience.matches {
            self.matchers.push((matches, Arc::clone(&store)));
        } else {
            let known = self.broadcasts.entry(Arc::clone(&store.name)).or_default();
            known.push(Arc::clone(&store));
        }
        store
    }

    fn matching(&self, destination: &str) -> impl Iterator<Item = &Arc<Store>> {
        let matches = move |(matches, store): &&(Matches, Arc<Store>)| matches.0(&store.name, destination);
        self.matchers.iter().filter(matches).map(|(_, store)| store)
    }

    fn new_store(&mut self, kind: Kind, text: &str, capacity: usize) -> Arc<Store> {
        self.forget_routes();
        self.next_id += 1;
        let name: Arc<str> = Arc::from(text);
        let letters = Arc::clone(self.shelves.entry(Arc::clone(&name)).or_default());
        Arc::new(Store::new(self.next_id, kind, name, capacity, letters))
    }

    /// Marks a queue as one that subscriptions read, so that it gets its copy whatever else matches.
    pub(super) fn open(&mut self, store: &Store) {
        let mut held = store.lock();
        if !held.opened {
            held.opened = true;
            self.forget_routes();
        }
    }

    /// Forgets the queue of a broadcast subscription that ended.
    pub(super) fn remove(&mut self, store: &Store) {
        if let Some(known) = self.broadcasts.get_mut(&store.name) {
            known.retain(|other| other.id != store.id);
            if known.is_empty() {
                self.broadcasts.remove(&store.name);
            }
            self.forget_routes();
        }
        let matchers = self.matchers.len();
        self.matchers.retain(|(_, other)| other.id != store.id);
        if self.matchers.len() < matchers {
            self.forget_routes();
        }
    }

    /// The queue or the pattern of this text, or the copy of a group.
    pub(super) fn find(&self, text: &str) -> Option<Arc<Store>> {
        let of_group = || {
            self.find_broadcasts(text)
                .into_iter()
                .find(|store| store.kind != Kind::Broadcast)
        };
        let own = self.queues.get(text).or_else(|| self.patterns.get(text));
        own.cloned().or_else(of_group)
    }

    /// The queues of the open broadcast subscriptions on this name, and those of its groups.
    pub(super) fn find_broadcasts(&self, name: &str) -> Vec<Arc<Store>> {
        let matching = self.matchers.iter().map(|(_, store)| store);
        let matching = matching.filter(|store| *store.name == *name);
        let named = self.broadcasts.get(name).into_iter().flatten();
        named.chain(matching).cloned().collect()
    }

    /// The dead letters kept under this name.
    pub(super) fn shelf(&self, text: &str) -> Option<Arc<Shelf>> {
        self.shelves.get(text).cloned()
    }

    /// Every queue there is.
    pub(super) fn all(&self) -> Vec<Arc<Store>> {
        let broadcasts = self.broadcasts.values().flatten();
        let matchers = self.matchers.iter().map(|(_, store)| store);
        self.queues
            .values()
            .chain(self.patterns.values())
            .chain(broadcasts)
            .chain(matchers)
            .cloned()
            .collect()
    }
}

/// Whether a subscription by this text reads many names.
pub(super) fn is_pattern(text: &str) -> bool {
    text.split('.').any(|level| level == "*" || level == ">")
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut levels = name.split('.');
    for wanted in pattern.split('.') {
        let Some(level) = levels.next() else {
            return false;
        };
        match wanted {
            ">" => return true,
            "*" => {}
            wanted if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

/// Refuses what cannot be subscribed to.
pub(super) fn check_source(text: &str) -> Result<(), TransportError> {
    let problem = if text.is_empty() {
        "a subscription needs a name, and this one is empty".to_owned()
    } else if text.split('.').rev().skip(1).any(|level| level == ">") {
        format!("`{text}`: `>` stands for all remaining levels and can only be the last; use `*` for one level")
    } else {
        return Ok(());
    };
    Err(TransportError::new(ErrorKind::Invalid, problem))
}

fn check_destination(name: &str) -> Result<(), TransportError> {
    let problem = if name.is_empty() {
        "a message needs a destination, and this one is empty".to_owned()
    } else if is_pattern(name) {
        format!("`{name}` is a pattern: a message goes to one name, and patterns are for subscriptions")
    } else {
        return Ok(());
    };
    Err(TransportError::new(ErrorKind::Invalid, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_level_and_an_arrow_is_the_rest() {
        for (pattern, name, matched) in [
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders", false),
            ("orders.*", "orders.eu.paris", false),
            ("orders.>", "orders.eu.paris", true),
            ("orders.>", "orders.eu", true),
            ("orders.>", "orders", false),
            ("*.eu", "orders.eu", true),
            ("*.eu", "orders.us", false),
            (">", "anything.at.all", true),
            ("*.*.x", "a.b.x", true),
        ] {
            assert_eq!(matches(pattern, name), matched, "{pattern} on {name}");
        }
    }

    #[test]
    fn a_star_inside_a_level_is_an_ordinary_letter() {
        assert!(!is_pattern("a*.b>c"));
        assert!(check_destination("a*.b>c").is_ok());
    }

    #[test]
    fn wrong_names_are_refused_with_the_fix() {
        for text in ["", "orders.>.eu"] {
            assert_eq!(check_source(text).unwrap_err().kind(), ErrorKind::Invalid);
        }
        for name in ["", "orders.*", ">"] {
            assert_eq!(check_destination(name).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}

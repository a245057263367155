//! How a server would lead messages from exchanges to queues, for tests without one.
//!
//! The rules are those of RabbitMQ's exchange types: <https://www.rabbitmq.com/docs/exchanges>,
//! <https://www.rabbitmq.com/docs/ae> for alternates, <https://www.rabbitmq.com/docs/sender-selected> for further routing keys.

use std::any::Any;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use lapin::types::{AMQPValue, FieldTable};
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::transport::{ErrorKind, Routed, Routes, TransportError};

use crate::options::LapinPublish;
use crate::outbox::{Letter, unroutable};
use crate::properties;
use crate::publish::prepare;
use crate::queue::{Declaration, Queue};
use crate::settings::Settings;
use crate::topology::{Binding, Exchange};

/// What the app declares, as a server that has nothing else would hold it.
pub(crate) struct Declarations {
    settings: Arc<Settings>,
    exchanges: HashMap<String, Exchange>,
    /// By the exchange that they lead from.
    bindings: HashMap<String, Vec<Binding>>,
}

impl Declarations {
    pub(crate) fn new(settings: &Settings, sources: &[&dyn Any]) -> Self {
        let mut declared = Self {
            settings: Arc::new(settings.clone()),
            exchanges: HashMap::new(),
            bindings: HashMap::new(),
        };
        let servers_own = [
            Exchange::direct("amq.direct"),
            Exchange::topic("amq.topic"),
            Exchange::fanout("amq.fanout"),
            Exchange::headers("amq.headers"),
            Exchange::headers("amq.match"),
        ];
        let topology = &settings.topology;
        for exchange in servers_own.into_iter().chain(topology.exchanges.iter().cloned()) {
            declared.exchanges.insert(exchange.name().to_owned(), exchange);
        }
        let read = sources.iter().filter_map(|source| source.downcast_ref::<Queue>());
        for queue in topology.queues.iter().chain(read) {
            if queue.spec.declaration != Declaration::Assert {
                continue;
            }
            for binding in &queue.spec.bindings {
                declared.bind(binding.clone());
            }
        }
        for binding in &topology.bindings {
            declared.bind(binding.clone());
        }
        declared
    }

    fn bind(&mut self, binding: Binding) {
        let known = self.bindings.entry(binding.exchange().to_owned()).or_default();
        // The server has one and the same binding once.
        if !known.contains(&binding) {
            known.push(binding);
        }
    }

    /// The queues that a letter reaches.
    fn reached(&self, letter: &Letter<'_>) -> Result<BTreeSet<String>, TransportError> {
        let headers = letter.properties.headers().clone().unwrap_or_default();
        let mut keys = vec![letter.routing_key.to_string()];
        for list in ["CC", "BCC"] {
            if let Some(AMQPValue::FieldArray(more)) = headers.inner().get(list) {
                keys.extend(more.as_slice().iter().filter_map(word));
            }
        }
        if letter.exchange.is_empty() {
            return Ok(keys.into_iter().collect());
        }
        let first = self.exchanges.get(&*letter.exchange).ok_or_else(|| {
            let text = format!(
                "exchange `{}` is not among those that the app declares: add .declare(Exchange::..), with \
                 .declaration(Declaration::Passive) where it is another's, or correct the name",
                letter.exchange
            );
            TransportError::new(ErrorKind::Unroutable, text)
        })?;
        if first.is_internal() {
            let text = format!(
                "exchange `{}` is internal: only other exchanges lead to it",
                letter.exchange
            );
            return Err(TransportError::new(ErrorKind::Denied, text));
        }
        let mut queues = BTreeSet::new();
        let mut seen = HashSet::from([first.name()]);
        let mut next = vec![first];
        while let Some(exchange) = next.pop() {
            let mut leads = false;
            let mut go_on = |name: &str| {
                if let Some(exchange) = self.exchanges.get(name)
                    && seen.insert(exchange.name())
                {
                    next.push(exchange);
                }
            };
            for binding in self.chosen(exchange, &keys, &headers) {
                leads = true;
                match (binding.queue(), binding.next_exchange()) {
                    (Some(queue), _) => {
                        queues.insert(queue.to_owned());
                    }
                    (None, Some(exchange)) => go_on(exchange),
                    (None, None) => {}
                }
            }
            if let Some(alternate) = exchange.alternate_exchange().filter(|_| !leads) {
                go_on(alternate);
            }
        }
        Ok(queues)
    }

    /// The bindings of an exchange that a message takes.
    fn chosen<'a>(&'a self, exchange: &Exchange, keys: &[String], headers: &FieldTable) -> Vec<&'a Binding> {
        let all = self
            .bindings
            .get(exchange.name())
            .map(Vec::as_slice)
            .unwrap_or_default();
        let by_key = |matches: fn(&str, &str) -> bool| {
            let wanted = |binding: &&Binding| keys.iter().any(|key| matches(binding.key(), key));
            all.iter().filter(wanted).collect()
        };
        match exchange.routes_as() {
            "direct" => by_key(|wanted, key| wanted == key),
            "topic" => by_key(is_topic),
            "fanout" => all.iter().collect(),
            "headers" => all
                .iter()
                .filter(|binding| has_headers(binding.arguments(), headers))
                .collect(),
            "x-consistent-hash" => hashed(all, keys.first().map_or("", String::as_str)),
            _ => Vec::new(),
        }
    }
}

impl Routes for Declarations {
    fn route(&self, message: &Outgoing<'_>) -> Result<Routed, TransportError> {
        let letter = prepare(&self.settings, message, 0)?;
        let queues = self.reached(&letter)?;
        // Who else is bound to an exchange of another's is not known here.
        let is_ours = self.exchanges.get(&*letter.exchange).is_none_or(Exchange::is_ours);
        if queues.is_empty() && letter.mandatory && is_ours {
            return Err(unroutable(&letter, &self.settings.label));
        }
        let typed = message
            .options::<LapinPublish>()
            .filter(|options| !options.headers().inner().is_empty());
        Ok(Routed {
            queues: queues.into_iter().collect(),
            headers: typed.map(|options| with_typed(message.headers(), options)),
        })
    }
}

/// The headers of a message, and behind them those of its options, as their readers see them.
fn with_typed(headers: &HeaderMap, options: &LapinPublish) -> HeaderMap {
    let mut all = headers.clone();
    let typed = lapin::BasicProperties::default().with_headers(options.headers().clone());
    for (name, value) in properties::decode(&typed).iter() {
        if headers.get(name).is_none() {
            all.append(name.to_owned(), value.to_vec());
        }
    }
    all
}

fn word(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => String::from_utf8(text.as_bytes().to_vec()).ok(),
        AMQPValue::ShortString(text) => Some(text.as_str().to_owned()),
        _ => None,
    }
}

/// Whether a routing key is one of those that a pattern stands for: `*` is one word, `#` any number of them.
fn is_topic(pattern: &str, key: &str) -> bool {
    fn matches(pattern: &[&str], words: &[&str]) -> bool {
        match pattern {
            [] => words.is_empty(),
            ["#", rest @ ..] => (0..=words.len()).any(|skipped| matches(rest, &words[skipped..])),
            [first, rest @ ..] => match words {
                [word, words @ ..] => (*first == "*" || first == word) && matches(rest, words),
                [] => false,
            },
        }
    }
    matches(&split(pattern), &split(key))
}

/// The words of a key: none of an empty one.
fn split(key: &str) -> Vec<&str> {
    if key.is_empty() {
        Vec::new()
    } else {
        key.split('.').collect()
    }
}

/// Whether a message has the headers that a binding asks for: the same value, or any where the binding has none.
fn has_headers(wanted: &FieldTable, headers: &FieldTable) -> bool {
    let how = wanted.inner().get("x-match").and_then(word);
    let how = how.as_deref().unwrap_or("all");
    let with_x = how.ends_with("-with-x");
    let mut asked = wanted.inner().iter().filter(|(name, _)| match name.as_str() {
        "x-match" => false,
        name => with_x || !name.starts_with("x-"),
    });
    let has = |(name, value): (&lapin::types::ShortString, &AMQPValue)| {
        let found = headers.inner().get(name.as_str());
        found.is_some_and(|found| matches!(value, AMQPValue::Void) || is_equal(value, found))
    };
    if how.starts_with("any") {
        asked.any(has)
    } else {
        asked.all(has)
    }
}

/// Values are equal whatever the size of their type, as the server compares them.
fn is_equal(one: &AMQPValue, other: &AMQPValue) -> bool {
    let whole = |value: &AMQPValue| match value {
        AMQPValue::ShortShortInt(value) => Some(i64::from(*value)),
        AMQPValue::ShortShortUInt(value) => Some(i64::from(*value)),
        AMQPValue::ShortInt(value) => Some(i64::from(*value)),
        AMQPValue::ShortUInt(value) => Some(i64::from(*value)),
        AMQPValue::LongInt(value) => Some(i64::from(*value)),
        AMQPValue::LongUInt(value) => Some(i64::from(*value)),
        AMQPValue::LongLongInt(value) => Some(*value),
        _ => None,
    };
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one == other,
        _ => match (word(one), word(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one == other,
        },
    }
}

/// One binding for each key, by its hash and their weights. Which one is the server's secret; that it is always the same is not.
fn hashed<'a>(bindings: &'a [Binding], key: &str) -> Vec<&'a Binding> {
    let weight = |binding: &Binding| binding.key().parse::<u64>().unwrap_or_default();
    let all: u64 = bindings.iter().map(weight).sum();
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let mut place = hasher.finish().checked_rem(all).unwrap_or_default();
    let chosen = bindings.iter().find(|binding| {
        let weight = weight(binding);
        let mine = place < weight;
        place = place.saturating_sub(weight);
        mine
    });
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_server_has_it() {
        for (pattern, key, matched) in [
            ("order.*", "order.created", true),
            ("order.*", "order", false),
            ("order.*", "order.a.b", false),
            ("order.#", "order", true),
            ("order.#", "order.a.b", true),
            ("#", "", true),
            ("#", "a.b", true),
            ("*", "", false),
            ("", "", true),
            ("#.created", "created", true),
            ("a.#.b.#.c", "a.b.c", true),
            ("a.#.b.#.c", "a.x.b.y.z.c", true),
            ("a.#.b.#.c", "a.c", false),
            ("*.*", "a.", true),
        ] {
            assert_eq!(is_topic(pattern, key), matched, "{pattern} on {key}");
        }
    }

    #[test]
    fn headers_match_by_value_whatever_the_size_of_the_type() {
        let table = |pairs: &[(&str, AMQPValue)]| {
            let mut table = FieldTable::default();
            for (name, value) in pairs {
                table.insert((*name).into(), value.clone());
            }
            table
        };
        let text = |text: &str| AMQPValue::LongString(text.into());
        let message = table(&[("count", 3i32.into()), ("kind", text("a")), ("x-trace", true.into())]);
        for (wanted, matched) in [
            (table(&[("count", 3i64.into())]), true),
            (table(&[("count", text("3"))]), false),
            (table(&[("count", 3i64.into()), ("kind", text("b"))]), false),
            (
                table(&[("x-match", text("any")), ("count", 3i64.into()), ("kind", text("b"))]),
                true,
            ),
            (table(&[("x-match", text("any"))]), false),
            (table(&[("kind", AMQPValue::Void)]), true),
            (table(&[("missing", AMQPValue::Void)]), false),
            (table(&[("x-trace", false.into())]), true),
            (
                table(&[("x-match", text("all-with-x")), ("x-trace", false.into())]),
                false,
            ),
            (table(&[]), true),
        ] {
            assert_eq!(has_headers(&wanted, &message), matched, "{wanted:?}");
        }
    }
}

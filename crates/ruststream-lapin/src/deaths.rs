//! Why the server dead-lettered a message, as its `x-death` header tells: <https://www.rabbitmq.com/docs/dlx#effects>.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

use crate::delay;
use crate::properties::DEATHS;

/// That a queue of the server dropped a message, once or several times for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Death {
    /// The queue that dropped it.
    pub queue: String,
    /// Why, in the server's word: `rejected`, `expired`, `maxlen`, `delivery_limit`.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// The exchange that it had been published to.
    pub exchange: String,
    /// The routing keys that it had been published with.
    pub routing_keys: Vec<String>,
    /// When it was dropped first.
    pub time: Option<SystemTime>,
}

/// The deaths of a message, the latest first, without the steps of its delays. What is not as it should be is read as far as it goes:
/// the header comes from clients too.
pub(crate) fn deaths(properties: &BasicProperties) -> Vec<Death> {
    let Some(deaths) = properties
        .headers()
        .as_ref()
        .and_then(|table| table.inner().get(DEATHS))
    else {
        return Vec::new();
    };
    let entries: Vec<&FieldTable> = match deaths {
        AMQPValue::FieldArray(entries) => entries.as_slice().iter().filter_map(table).collect(),
        single => table(single).into_iter().collect(),
    };
    let all = entries.into_iter().map(death);
    all.filter(|death| !death.queue.starts_with(delay::PREFIX)).collect()
}

fn table(value: &AMQPValue) -> Option<&FieldTable> {
    match value {
        AMQPValue::FieldTable(table) => Some(table),
        _ => None,
    }
}

fn death(entry: &FieldTable) -> Death {
    let value = |name: &str| entry.inner().get(name);
    let text = |name: &str| value(name).and_then(text).unwrap_or_default();
    Death {
        queue: text("queue"),
        reason: text("reason"),
        // RabbitMQ before 3.5 made an entry for each time.
        count: value("count").and_then(number).unwrap_or(1),
        exchange: text("exchange"),
        routing_keys: match value("routing-keys") {
            Some(AMQPValue::FieldArray(keys)) => keys.as_slice().iter().filter_map(self::text).collect(),
            Some(single) => self::text(single).into_iter().collect(),
            None => Vec::new(),
        },
        time: value("time")
            .and_then(number)
            .and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds))),
    }
}

fn text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => Some(String::from_utf8_lossy(text.as_bytes()).into_owned()),
        AMQPValue::ShortString(text) => Some(text.as_str().to_owned()),
        _ => None,
    }
}

fn number(value: &AMQPValue) -> Option<u64> {
    let mut one = FieldTable::default();
    one.insert("n".into(), value.clone());
    crate::properties::number(&BasicProperties::default().with_headers(one), "n")
}

#[cfg(test)]
mod tests {
    use lapin::types::FieldArray;

    use super::*;

    fn entry(queue: &str, count: impl Into<AMQPValue>) -> AMQPValue {
        let mut table = FieldTable::default();
        table.insert("queue".into(), AMQPValue::LongString(queue.into()));
        table.insert("reason".into(), AMQPValue::LongString("expired".into()));
        table.insert("count".into(), count.into());
        table.insert("time".into(), AMQPValue::Timestamp(7));
        let keys: FieldArray = vec![AMQPValue::LongString("a".into()), AMQPValue::LongString("b".into())].into();
        table.insert("routing-keys".into(), AMQPValue::FieldArray(keys));
        AMQPValue::FieldTable(table)
    }

    fn read(value: AMQPValue) -> Vec<Death> {
        let mut table = FieldTable::default();
        table.insert(DEATHS.into(), value);
        deaths(&BasicProperties::default().with_headers(table))
    }

    #[test]
    fn deaths_are_read_in_all_their_shapes() {
        let all = vec![
            entry("a", 3i64),
            entry("ruststream.delay.1.4", 1i64),
            entry("b", 2i32),
            true.into(),
        ];
        let read_all = read(AMQPValue::FieldArray(all.into()));
        let counts: Vec<_> = read_all
            .iter()
            .map(|death| (death.queue.as_str(), death.count))
            .collect();
        assert_eq!(counts, [("a", 3), ("b", 2)]);
        assert_eq!(read_all[0].routing_keys, ["a", "b"]);
        assert_eq!(read_all[0].time, Some(UNIX_EPOCH + Duration::from_secs(7)));
        assert_eq!(read(entry("alone", 1u8)).len(), 1);
        assert_eq!(read(AMQPValue::FieldTable(FieldTable::default()))[0].count, 1);
        assert!(read(AMQPValue::LongString("nonsense".into())).is_empty());
    }
}

//! Sending what handlers queued, with the acks of their messages.

use bytes::Bytes;
use fred::types::Value;

use super::RedisCommands;
use crate::error::Failure;
use crate::hub::Hub;
use crate::reply;
use crate::script::Script;

static RUN: Script = Script::new(include_str!("lua/run.lua"));

/// How many words one call of the script bears, so that the server serves others in between. One message may have more.
const WORDS: usize = 4_000;

/// The numbers that lengths mostly are.
const SMALL: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// What holds the messages.
pub(crate) enum Place<'a> {
    Stream {
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        /// Whether someone else may have a message by now, or the call before may have come through.
        asks: bool,
    },
    /// The hash of what a consumer of a list holds.
    List(&'a str),
    /// No one holds them.
    Channel(&'a str),
}

impl Place<'_> {
    fn key(&self) -> &str {
        match self {
            Self::Stream { stream: key, .. } | Self::List(key) | Self::Channel(key) => key,
        }
    }

    fn write(&self, values: &mut Vec<Value>) {
        let (kind, asks, group, consumer) = match self {
            Self::Stream {
                group, consumer, asks, ..
            } => ("stream", *asks, *group, *consumer),
            Self::List(_) => ("list", false, "", ""),
            Self::Channel(_) => ("channel", false, "", ""),
        };
        values.push(Value::from_static_str(kind));
        values.push(Value::from_static_str(if asks { "1" } else { "0" }));
        values.push(group.into());
        values.push(consumer.into());
    }
}

/// Acks messages, and runs what was queued for each that is still held. Answers how many were not.
pub(crate) async fn run(
    hub: &Hub,
    slot: u16,
    place: &Place<'_>,
    messages: &[(Bytes, RedisCommands)],
) -> Result<usize, Failure> {
    const WHAT: &str = "the script that runs commands";
    let mut all = 0;
    let mut rest = messages;
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(fitting(rest));
        rest = behind;
        let answer = RUN
            .run(hub, slot, &[place.key()], |values| {
                place.write(values);
                for (name, commands) in part {
                    values.push(Value::Bytes(name.clone()));
                    let queued = commands.queued();
                    values.push(length(queued.len()));
                    for (word, arguments) in &*queued {
                        values.push(length(1 + arguments.len()));
                        values.push(Value::from_static_str(word));
                        values.extend(arguments.iter().cloned());
                    }
                }
            })
            .await?;
        let [stale, errors] = reply::exactly(answer, WHAT)?;
        all += usize::try_from(reply::number(&stale, WHAT)?).unwrap_or_default();
        for error in reply::parts(errors, WHAT)? {
            let error = reply::text(error, WHAT)?;
            tracing::error!(key = place.key(), error, "a command that a handler queued failed");
        }
    }
    Ok(all)
}

/// How many of the first fit into one call.
fn fitting(messages: &[(Bytes, RedisCommands)]) -> usize {
    let mut words = 0;
    let fitting = messages.iter().take_while(|(_, commands)| {
        let queued = commands.queued();
        words += 2 + queued.iter().map(|(_, values)| 2 + values.len()).sum::<usize>();
        words <= WORDS
    });
    fitting.count().max(1)
}

fn length(length: usize) -> Value {
    SMALL
        .get(length)
        .map_or_else(|| reply::count(length), |text| Value::from_static_str(text))
}

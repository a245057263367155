//! The command that sends a message.

use bytes::Bytes;
use fred::bytes_utils::Str;
use fred::error::Error;
use fred::interfaces::{ListInterface, PubsubInterface, StreamsInterface};
use fred::types::streams::{XCapKind, XCapTrim, XID};
use fred::types::{Key, Value};
use ruststream::message::Outgoing;

use crate::link::Command;
use crate::publish::RedisPublish;
use crate::source::Form;
use crate::{envelope, message};

/// A message on its way.
pub(crate) enum Sending {
    Entry(Entry),
    Push { list: Str, value: Bytes },
    Tell { channel: Str, value: Bytes },
    TellShard { channel: Str, value: Bytes },
}

/// What is added to a stream.
pub(crate) struct Entry {
    stream: Str,
    most: Option<i64>,
    /// The server's own where there is none.
    id: Option<Str>,
    fields: Vec<(Key, Value)>,
}

impl Sending {
    pub(crate) fn new(form: Form, message: &Outgoing<'_>) -> Self {
        let name = Str::from(message.destination());
        let value = || envelope::write(message, b"");
        match form {
            Form::Stream => {
                let options = message.options::<RedisPublish>();
                let most = options.and_then(|options| options.max_length);
                Self::Entry(Entry {
                    stream: name,
                    most: most.map(|most| i64::try_from(most).unwrap_or(i64::MAX)),
                    id: options.and_then(|options| options.id).map(|id| id.to_string().into()),
                    fields: message::fields(message),
                })
            }
            Form::List | Form::PlainList => Self::Push {
                list: name,
                value: value(),
            },
            Form::Channel => Self::Tell {
                channel: name,
                value: value(),
            },
            Form::ShardedChannel => Self::TellShard {
                channel: name,
                value: value(),
            },
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Entry(_) => "XADD",
            Self::Push { .. } => "LPUSH",
            Self::Tell { .. } => "PUBLISH",
            Self::TellShard { .. } => "SPUBLISH",
        }
    }

    /// Gives it to fred by the call that is made for it: fred writes these together with others, while it flushes the socket behind each
    /// command that it does not know.
    pub(crate) async fn put<C>(self, client: &C) -> Result<Value, Error>
    where
        C: StreamsInterface + ListInterface + PubsubInterface + Sync,
    {
        match self {
            Self::Entry(Entry {
                stream,
                most,
                id,
                fields,
            }) => {
                let id = id.map_or(XID::Auto, XID::Manual);
                match most {
                    None => client.xadd(stream, false, None, id, fields).await,
                    Some(most) => {
                        let cap = (XCapKind::MaxLen, XCapTrim::AlmostExact, most);
                        client.xadd(stream, false, cap, id, fields).await
                    }
                }
            }
            Self::Push { list, value } => client.lpush(list, value).await,
            Self::Tell { channel, value } => client.publish(channel, value).await,
            Self::TellShard { channel, value } => client.spublish(channel, value).await,
        }
    }

    /// As any command is written.
    pub(crate) fn into_command(self) -> Command {
        let word = self.word();
        let values = match self {
            Self::Entry(entry) => entry.values(),
            Self::Push { list: name, value }
            | Self::Tell { channel: name, value }
            | Self::TellShard { channel: name, value } => vec![name.into(), value.into()],
        };
        (word, values)
    }
}

impl Entry {
    fn values(self) -> Vec<Value> {
        let mut values = Vec::with_capacity(5 + 2 * self.fields.len());
        values.push(self.stream.into());
        if let Some(most) = self.most {
            values.push(Value::from_static_str("MAXLEN"));
            values.push(Value::from_static_str("~"));
            values.push(most.into());
        }
        values.push(self.id.map_or_else(|| Value::from_static_str("*"), Value::from));
        for (name, value) in self.fields {
            values.push(Value::Bytes(name.into_bytes()));
            values.push(value);
        }
        values
    }
}

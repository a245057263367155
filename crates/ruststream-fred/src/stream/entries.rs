//! From what the server answers to deliveries.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use fred::interfaces::Resp3Frame as Frame;
use ruststream::message::HeaderMap;
use tokio::time::Instant;

use super::delivery::{StreamDelivery, StreamEntry};
use super::shared::Shared;
use super::time::EntryId;
use crate::commands::RedisCommands;
use crate::error::Failure;
use crate::lease::{Chunk, Held};
use crate::{message, reply};

/// What the server said of one entry.
struct Raw {
    id: Bytes,
    entry: EntryId,
    payload: Bytes,
    headers: HeaderMap,
    count: u32,
    unfinished: bool,
}

/// What a read brought.
#[derive(Default)]
pub(super) struct Read {
    raw: Vec<Raw>,
    /// Ids of wake entries.
    pub(super) woken_by: Vec<Bytes>,
}

impl Read {
    /// Reads the answer to `XREADGROUP`.
    pub(super) fn new(answer: Frame, shared: &Shared) -> Result<Self, Failure> {
        const WHAT: &str = "XREADGROUP";
        let mut read = Self::default();
        let mut take = |name: Frame, entries: Frame| -> Result<(), Failure> {
            let name = reply::bytes(name, WHAT)?;
            let entries = reply::parts(entries, WHAT)?;
            if name == shared.stream.as_bytes() {
                read.raw.reserve(entries.len());
            }
            for entry in entries {
                let [id, fields] = reply::exactly(entry, WHAT)?;
                let id = reply::bytes(id, WHAT)?;
                if name == shared.stream.as_bytes() {
                    read.raw.push(Raw::new(id, fields, 1, false)?);
                } else {
                    read.woken_by.push(id);
                }
            }
            Ok(())
        };
        match answer {
            Frame::Null => {}
            Frame::Map { data, .. } => {
                for (name, entries) in data {
                    take(name, entries)?;
                }
            }
            // RESP2 has pairs in place of a map.
            answer => {
                for pair in reply::parts(answer, WHAT)? {
                    let [name, entries] = reply::exactly(pair, WHAT)?;
                    take(name, entries)?;
                }
            }
        }
        Ok(read)
    }

    /// Reads what the script that looks after a stream hands out.
    pub(super) fn tended(entries: Frame) -> Result<Self, Failure> {
        const WHAT: &str = "the script that looks after a stream";
        let mut read = Self::default();
        for entry in reply::parts(entries, WHAT)? {
            let [id, fields, count, unfinished] = reply::exactly(entry, WHAT)?;
            let id = reply::bytes(id, WHAT)?;
            let count = u32::try_from(reply::number(&count, WHAT)?).unwrap_or(u32::MAX);
            let unfinished = reply::number(&unfinished, WHAT)? != 0;
            read.raw.push(Raw::new(id, fields, count.max(1), unfinished)?);
        }
        Ok(read)
    }

    pub(super) fn len(&self) -> usize {
        self.raw.len()
    }

    pub(super) fn ids(&self) -> Vec<Bytes> {
        self.raw.iter().map(|raw| raw.id.clone()).collect()
    }

    /// The newest entry.
    pub(super) fn last(&self) -> Option<EntryId> {
        self.raw.iter().map(|raw| raw.entry).max()
    }

    /// The size of the largest payload.
    pub(super) fn largest(&self) -> usize {
        self.raw.iter().map(|raw| raw.payload.len()).max().unwrap_or(0)
    }

    /// The size of all payloads together.
    pub(super) fn bytes(&self) -> usize {
        self.raw.iter().map(|raw| raw.payload.len()).sum()
    }

    /// Drops the entries at these positions, in ascending order: someone else has them.
    pub(super) fn without(&mut self, lost: &[usize]) {
        let mut position = 0;
        self.raw.retain(|_| {
            let keeps = lost.binary_search(&position).is_err();
            position += 1;
            keeps
        });
    }

    /// Drops those reclaimed that are in hand here, which a link that was down kept from being renewed; answers them with their counts.
    pub(super) fn without_held(&mut self, shared: &Shared) -> Vec<(Bytes, u32)> {
        if !self.raw.iter().any(|raw| raw.unfinished) {
            return Vec::new();
        }
        let held: HashSet<Bytes> = shared.book.held().into_iter().map(|entry| entry.id).collect();
        // A retry that is due may come before it is known here that it was settled: that one is handed out.
        self.raw
            .extract_if(.., |raw| raw.unfinished && held.contains(&raw.id))
            .map(|raw| (raw.id, raw.count))
            .collect()
    }

    /// The deliveries, entered into the book; their idle times run from `since` on, or later.
    pub(super) fn into_deliveries(
        self,
        shared: &Shared,
        since: Instant,
    ) -> impl Iterator<Item = StreamDelivery> + use<> {
        let chunk = Chunk::new(self.raw.iter().map(|raw| raw.id.clone()).collect(), since);
        shared.book.enter(&chunk);
        let consumer = Arc::clone(&shared.consumer);
        let settings = shared.hub.settings();
        let slot = settings.is_cluster().then_some(shared.slot);
        let (has_commands, form) = (shared.commands.is_some(), settings.form);
        self.raw
            .into_iter()
            .enumerate()
            .map(move |(index, raw)| StreamDelivery {
                payload: raw.payload,
                headers: raw.headers,
                attempt: raw.count,
                unfinished: raw.unfinished,
                entry: StreamEntry::new(
                    raw.entry,
                    Arc::clone(&consumer),
                    has_commands.then(|| RedisCommands::new(slot, form)),
                ),
                held: Held::new(Arc::clone(&chunk), index),
            })
    }
}

impl Raw {
    fn new(id: Bytes, fields: Frame, count: u32, unfinished: bool) -> Result<Self, Failure> {
        let entry = EntryId::read(&id).ok_or_else(|| Failure::strange("the id of an entry"))?;
        let message::Fields { payload, headers } = message::read(fields)?;
        Ok(Self {
            id,
            entry,
            payload,
            headers,
            count,
            unfinished,
        })
    }
}

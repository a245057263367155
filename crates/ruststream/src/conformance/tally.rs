//! The messages of a check: which were sent, which came.

use std::collections::BTreeMap;

use super::Violation;
use super::violation::ensure;
use crate::transport::Delivery;

/// `count` different payloads, in order.
pub(super) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("message {number:05}")).collect()
}

pub(super) fn payloads<D: Delivery>(deliveries: &[D]) -> Vec<String> {
    deliveries.iter().map(|delivery| text(delivery)).collect()
}

pub(super) fn text(delivery: &impl Delivery) -> String {
    String::from_utf8_lossy(delivery.payload()).into_owned()
}

/// The beginning of some bytes, for people.
pub(super) fn preview(bytes: &[u8]) -> String {
    const SHOWN: usize = 40;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    if bytes.len() > SHOWN {
        format!("{shown:?}... ({} bytes)", bytes.len())
    } else {
        format!("{shown:?}")
    }
}

/// Which of the expected messages came, and how often.
pub(super) struct Tally {
    came: BTreeMap<String, usize>,
    missing: usize,
    foreign: Vec<String>,
}

impl Tally {
    pub(super) fn of(expected: &[String]) -> Self {
        Self {
            came: expected.iter().map(|one| (one.clone(), 0)).collect(),
            missing: expected.len(),
            foreign: Vec::new(),
        }
    }

    pub(super) fn add<D: Delivery>(&mut self, deliveries: &[D]) {
        for delivery in deliveries {
            self.note(text(delivery));
        }
    }

    /// Counts one message that came.
    pub(super) fn note(&mut self, text: String) {
        match self.came.get_mut(&text) {
            Some(count) => {
                self.missing -= usize::from(*count == 0);
                *count += 1;
            }
            None => self.foreign.push(text),
        }
    }

    /// Whether each came at least once.
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Expects that each came once, and nothing else.
    pub(super) fn check(&self) -> Result<(), Violation> {
        let that_came = |wanted: fn(usize) -> bool| {
            let found = self.came.iter().filter(|(_, count)| wanted(**count));
            found.map(|(text, _)| text.as_str()).collect::<Vec<_>>()
        };
        let missing = that_came(|count| count == 0);
        let doubled = that_came(|count| count > 1);
        ensure!(missing.is_empty(), "never delivered: {}", listed(&missing));
        ensure!(doubled.is_empty(), "delivered more than once: {}", listed(&doubled));
        ensure!(
            self.foreign.is_empty(),
            "delivered and never published: {:?}",
            self.foreign
        );
        Ok(())
    }
}

/// Expects these messages, each once, in any order.
pub(super) fn each_once<D: Delivery>(expected: &[String], deliveries: &[D]) -> Result<(), Violation> {
    let mut tally = Tally::of(expected);
    tally.add(deliveries);
    tally.check()
}

fn listed(texts: &[&str]) -> String {
    const SHOWN: usize = 5;
    let more = if texts.len() > SHOWN { ", ..." } else { "" };
    format!("{} ({}{more})", texts.len(), texts[..texts.len().min(SHOWN)].join(", "))
}

//! What the rows send.

use ruststream::message::HeaderMap;
use serde::{Deserialize, Serialize};

/// The queue that every loop reads.
pub(super) const IN: &str = "in";
/// The queue that replies and what is published go to.
pub(super) const OUT: &str = "out";

/// A small message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) id: u64,
    pub(super) cents: i64,
}

/// What every loop sends, where it is small.
pub(super) const ORDER: Order = Order { id: 7, cents: 1250 };
pub(super) const SMALL: &[u8] = br#"{"id":7,"cents":1250}"#;

/// What is replied and published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipt {
    pub(super) order: u64,
}

impl Receipt {
    pub(super) fn of(order: Order) -> Self {
        Self { order: order.id }
    }
}

/// What a service that bills reads of a large order; the other fields are skipped.
#[derive(Debug, Deserialize)]
pub(super) struct Billed<'a> {
    pub(super) id: u64,
    #[serde(borrow)]
    pub(super) currency: &'a str,
    pub(super) total_cents: i64,
}

impl Billed<'_> {
    pub(super) fn is_right(&self) -> bool {
        self.id == 90_210_417 && self.currency == "EUR" && self.total_cents == 48_235
    }
}

/// An order of 1,024 bytes with seven lines.
pub(super) const LARGE: &[u8] = include_bytes!("order-1kb.json");

/// The headers that a handler reads.
#[derive(Debug, Deserialize)]
pub(super) struct Origin<'a> {
    pub(super) region: &'a str,
    pub(super) schema: u32,
}

/// The headers that a message bears whose handler reads them.
pub(super) fn headers() -> HeaderMap {
    [("region", "eu-west-1"), ("schema", "3")].into_iter().collect()
}

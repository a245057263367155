//! What the messages are and what is done with one: the same in every loop.

use std::hint::black_box;

use serde::{Deserialize, Serialize};

/// What a handler takes: a small struct out of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The number of the order.
    pub id: u64,
    /// Its amount.
    pub cents: i64,
}

/// What a handler answers with where the scenario has replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The number of the order.
    pub order: u64,
}

/// An order as it is published where messages have 512 bytes: readers skip the note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotedOrder {
    id: u64,
    cents: i64,
    note: String,
}

/// The order of [`body`].
pub fn noted_order() -> NotedOrder {
    let mut order = NotedOrder {
        id: 7,
        cents: 1250,
        note: String::new(),
    };
    order.note = "x".repeat(512 - encoded(&order).len());
    order
}

/// The order of the scenarios whose messages are small.
pub const fn small_order() -> Order {
    Order { id: 7, cents: 1250 }
}

/// A message of 512 bytes of JSON.
pub fn body() -> Vec<u8> {
    encoded(&noted_order())
}

/// A message as bytes, by the codec that services use where none is set.
///
/// # Panics
///
/// Where the message has no form in JSON; those of the scenarios have.
pub fn encoded(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_else(|error| panic!("a message of the scenarios has a JSON form: {error}"))
}

/// Decodes a payload as services do where no codec is set.
///
/// # Errors
///
/// Where it is no order.
pub fn decoded(payload: &[u8]) -> Result<Order, serde_json::Error> {
    serde_json::from_slice(payload)
}

/// What is done with a decoded message: enough that it cannot be left out, and no more.
pub fn handle(order: Order) -> Receipt {
    black_box(Receipt { order: order.id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_512_bytes_of_json_that_decodes_to_an_order() {
        let body = body();
        assert_eq!(body.len(), 512);
        assert_eq!(decoded(&body).unwrap(), small_order());
    }
}

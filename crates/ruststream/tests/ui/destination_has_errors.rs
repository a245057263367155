//! Destinations of messages that cannot be: a field that is not there, and a brace that stands alone.

use ruststream::prelude::*;

#[derive(Serialize, Message)]
#[message(destination = "orders.{land}")]
struct Order {
    region: String,
}

#[derive(Serialize, Message)]
#[message(destination = "orders.{region")]
struct Cut {
    region: String,
}

fn main() {}

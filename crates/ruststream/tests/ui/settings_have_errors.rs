use ruststream::prelude::*;

#[subscriber]
async fn without_a_name(order: u64) {}

#[subscriber(reply = "receipts")]
async fn reply_alone(order: u64) -> u64 {
    order
}

#[subscriber("")]
async fn empty_name(order: u64) {}

#[subscriber(7)]
async fn name_is_no_string(order: u64) {}

#[subscriber("orders", replay = "receipts")]
async fn misspelt(order: u64) -> u64 {
    order
}

#[subscriber("orders", workers = 8)]
async fn setting_of_the_app(order: u64) {}

#[subscriber("orders", reply = "receipts", reply = "copies")]
async fn twice(order: u64) -> u64 {
    order
}

#[subscriber("orders", reply = "")]
async fn reply_to_an_empty_name(order: u64) -> u64 {
    order
}

#[subscriber("orders", "receipts")]
async fn two_names(order: u64) {}

#[subscriber("orders", reply = "receipts")]
async fn replies_nothing(order: u64) {}

#[subscriber("orders", reply = "receipts")]
async fn replies_unit(order: u64) -> Result<(), String> {
    Ok(())
}

#[subscriber("orders", reply = "receipts")]
async fn replies_an_outcome(order: u64) -> HandlerOutcome {
    HandlerOutcome::ack()
}

#[subscriber("orders", reply = "receipts")]
async fn batch_replies(orders: &[u64]) -> u64 {
    0
}

fn main() {}

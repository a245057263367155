use ruststream::prelude::*;

#[subscriber("orders")]
async fn confirm(orders: &[u64]) -> usize {
    orders.len()
}

fn main() {}

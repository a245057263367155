use ruststream::prelude::*;

struct Order {
    id: u64,
}

#[subscriber("orders")]
async fn confirm(orders: &[Order]) {
    println!("{}", orders[0].id);
}

fn main() {}

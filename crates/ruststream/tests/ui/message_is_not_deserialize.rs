use ruststream::prelude::*;

struct Order {
    id: u64,
}

#[subscriber("orders")]
async fn confirm(order: Order) {
    println!("{}", order.id);
}

#[subscriber("orders")]
async fn confirm_lent(order: &Order) {
    println!("{}", order.id);
}

fn main() {}

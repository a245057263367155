use std::rc::Rc;

use ruststream::prelude::*;

#[derive(Deserialize)]
struct Order {
    #[serde(skip)]
    shared: Rc<u64>,
}

#[subscriber("orders")]
async fn confirm(order: Order) {
    println!("{}", order.shared);
}

fn main() {}

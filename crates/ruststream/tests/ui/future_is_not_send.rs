use std::rc::Rc;

use ruststream::prelude::*;

#[subscriber("orders")]
async fn confirm(order: u64) {
    let shared = Rc::new(order);
    tokio::task::yield_now().await;
    println!("{shared}");
}

fn main() {}

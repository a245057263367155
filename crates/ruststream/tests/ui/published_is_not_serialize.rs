use ruststream::prelude::*;
use ruststream::publish::Publisher;

struct Receipt {
    order: u64,
}

async fn send(publisher: Publisher) {
    let _ = publisher.publish("receipts", &Receipt { order: 7 }).await;
}

#[subscriber("orders")]
async fn confirm(order: u64, receipts: Out<Receipt>) {
    let _ = receipts.publish("receipts", &Receipt { order }).await;
}

fn main() {}

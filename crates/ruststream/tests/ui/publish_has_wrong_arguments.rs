use ruststream::prelude::*;

#[derive(Serialize)]
struct Receipt {
    order: u64,
}

#[subscriber("orders")]
async fn message_first(order: u64, receipts: Out<Receipt>) {
    let _ = receipts.publish(&Receipt { order }, "receipts").await;
}

#[subscriber("orders")]
async fn no_destination(order: u64, receipts: Out<Receipt>) {
    let _ = receipts.publish(&Receipt { order }).await;
}

#[subscriber("orders")]
async fn by_value(order: u64, receipts: Out<Receipt>) {
    let _ = receipts.publish("receipts", Receipt { order }).await;
}

#[subscriber("orders")]
async fn another(order: u64, receipts: Out<Receipt>) {
    let _ = receipts.publish("receipts", &order).await;
}

#[subscriber("orders")]
async fn no_name(order: u64, receipts: Out<Receipt>) {
    let _ = receipts.publish(order, &Receipt { order }).await;
}

fn main() {}

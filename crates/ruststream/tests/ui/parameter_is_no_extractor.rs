use ruststream::prelude::*;

struct Shop;

#[subscriber("orders")]
async fn confirm(order: u64, _shop: Shop) {
    println!("{order}");
}

fn main() {
    RustStream::new(AppInfo::new("orders", "1.0.0")).with_broker(MemoryBroker::new(), |broker| {
        broker.include(confirm);
    });
}

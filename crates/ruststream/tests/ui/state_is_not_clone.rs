use ruststream::prelude::*;

struct Shop;

#[subscriber("orders")]
async fn confirm(order: u64, State(_shop): State<Shop>) {
    println!("{order}");
}

fn main() {
    let _ = RustStream::new(AppInfo::new("orders", "1.0.0"))
        .state(Shop)
        .with_broker(MemoryBroker::new(), |broker| {
            broker.include(confirm);
        });
}

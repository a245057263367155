use ruststream::prelude::*;

#[subscriber("orders")]
async fn confirm(_order: u64) {}

fn main() {
    let _ = RustStream::new(AppInfo::new("orders", "1.0.0")).with_broker(MemoryBroker::new(), |broker| {
        broker.include(confirm).retry(5);
        broker.include(confirm).timeout(30);
        broker.include(confirm).ordered_by("customer");
        broker.include(confirm).source("orders.eu");
    });
}

use ruststream::prelude::*;

struct Origin {
    region: String,
}

#[subscriber("orders")]
async fn confirm(_order: u64, _origin: Headers<Origin>) {}

fn main() {
    let _ = RustStream::new(AppInfo::new("orders", "1.0.0")).with_broker(MemoryBroker::new(), |broker| {
        broker.include(confirm);
    });
}

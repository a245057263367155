use ruststream::prelude::*;

async fn confirm(order: u64) {
    println!("{order}");
}

fn main() {
    RustStream::new(AppInfo::new("orders", "1.0.0")).with_broker(MemoryBroker::new(), |broker| {
        broker.include(confirm);
    });
}

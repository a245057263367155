use ruststream::prelude::*;

#[derive(Deserialize)]
struct Origin {
    region: String,
}

#[subscriber("readings")]
async fn store(readings: &[u64], Headers(origin): Headers<Origin>) {
    println!("{} readings of {}", readings.len(), origin.region);
}

fn main() {
    RustStream::new(AppInfo::new("readings", "1.0.0")).with_broker(MemoryBroker::new(), |broker| {
        broker.include(store);
    });
}

use ruststream::prelude::*;

#[derive(Clone)]
struct Shop;

#[derive(Clone)]
struct Clock;

#[subscriber("orders")]
async fn confirm(order: u64, State(_clock): State<Clock>) {
    println!("{order}");
}

fn main() {
    RustStream::new(AppInfo::new("orders", "1.0.0"))
        .state(Shop)
        .with_broker(MemoryBroker::new(), |broker| {
            broker.include(confirm);
        });
}

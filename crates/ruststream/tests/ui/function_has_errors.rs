use ruststream::prelude::*;

#[subscriber("orders")]
fn not_async(order: u64) {
    println!("{order}");
}

#[subscriber("orders")]
async fn no_message() {}

#[subscriber("orders")]
async fn generic<T: Serialize>(order: T) {}

#[subscriber("orders")]
async fn with_lifetime<'a>(order: &'a str) {}

#[subscriber("orders")]
async fn bounded(order: u64)
where
    u64: Copy,
{
}

#[subscriber("orders")]
async fn some_message(order: impl Serialize) {}

#[subscriber("orders")]
async fn some_extractor(order: u64, shop: impl Clone) {}

#[subscriber("orders")]
async unsafe fn without_safety(order: u64) {}

#[subscriber("orders")]
async extern "C" fn foreign(order: u64) {}

#[subscriber("orders")]
const fn constant(order: u64) {}

#[subscriber("orders")]
async fn method(&self, order: u64) {}

#[subscriber("orders")]
async fn changed(order: &mut u64) {}

#[subscriber("orders")]
async fn kept(order: &'static u64) {}

#[subscriber("orders")]
async fn state_first(State(limit): State<u64>, order: u64) {}

#[subscriber("orders")]
async fn endless(order: u64) -> ! {
    loop {}
}

#[subscriber("orders")]
struct Confirm;

fn main() {
    RustStream::new(AppInfo::new("orders", "1.0.0")).with_broker(MemoryBroker::new(), |broker| {
        broker.include(not_async);
    });
}

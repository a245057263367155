use ruststream::prelude::*;

struct Placed {
    id: u64,
}

#[derive(Message)]
#[message(header = "kind")]
enum OrderEvent {
    Placed(Placed),
}

#[subscriber("orders")]
async fn follow(_event: OrderEvent) {}

fn main() {}

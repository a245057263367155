use ruststream::prelude::*;

#[derive(Deserialize)]
struct Placed;

#[derive(Deserialize)]
struct Cancelled;

#[derive(Message)]
#[message(header = "kind")]
struct Order {
    id: u64,
}

#[derive(Message)]
enum WithoutHeader {
    Placed(Placed),
}

#[derive(Message)]
#[message(kind)]
enum AnotherSetting {
    Placed(Placed),
}

#[derive(Message)]
#[message(header = "kind")]
enum Fields {
    Placed { id: u64 },
}

#[derive(Message)]
#[message(header = "kind")]
enum Twice {
    #[message("placed")]
    Placed(Placed),
    #[message("placed")]
    Cancelled(Cancelled),
}

#[derive(Message)]
#[message(header = "kind")]
enum NoText {
    #[message(7)]
    Placed(Placed),
}

#[derive(Deserialize, Message)]
#[message(header = "kind")]
enum BothWays {
    Placed(Placed),
}

#[subscriber("orders")]
async fn confirm(_event: WithoutHeader) {}

fn main() {}

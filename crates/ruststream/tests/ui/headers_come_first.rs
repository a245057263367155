use ruststream::prelude::*;

#[derive(Deserialize)]
struct Origin {
    region: String,
}

#[subscriber("orders")]
async fn confirm(Headers(origin): Headers<Origin>, order: u64) {}

#[subscriber("orders")]
async fn list(headers: &HeaderMap, order: u64) {}

fn main() {}

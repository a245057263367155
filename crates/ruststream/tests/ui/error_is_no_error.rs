use ruststream::prelude::*;

struct ShopError;

#[subscriber("orders")]
async fn confirm(_order: u64) -> Result<(), ShopError> {
    Err(ShopError)
}

#[subscriber("orders", reply = "receipts")]
async fn receipt(_order: u64) -> Result<u64, ShopError> {
    Err(ShopError)
}

fn main() {}

use ruststream::prelude::*;

#[derive(Serialize)]
struct Receipt;

#[subscriber("orders")]
async fn confirm(_order: u64) -> Receipt {
    Receipt
}

#[subscriber("orders")]
async fn confirm_or_fail(_order: u64) -> Result<Receipt, String> {
    Ok(Receipt)
}

fn main() {}

use ruststream::prelude::*;

struct Receipt;

#[subscriber("orders", reply = "receipts")]
async fn confirm(_order: u64) -> Receipt {
    Receipt
}

#[subscriber("orders", reply = "receipts")]
async fn confirm_or_fail(_order: u64) -> Result<Receipt, String> {
    Ok(Receipt)
}

fn main() {}

//! Places an order from the command line: `cargo run -p tutorial --bin place -- 1 ada 950`.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

use std::error::Error;

use ruststream::prelude::*;
use ruststream_sqlx::SqlxBroker;

#[derive(Debug, Serialize)]
struct Order<'a> {
    id: u64,
    customer: &'a str,
    cents: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [id, customer, cents] = arguments.as_slice() else {
        return Err("usage: place ID CUSTOMER CENTS".into());
    };
    let (id, cents) = (id.parse()?, cents.parse()?);
    let order = Order { id, customer, cents };

    // An app that handles nothing: it publishes, and stops.
    let app = RustStream::new(AppInfo::new("place", "1.0.0"))
        .with_broker(SqlxBroker::sqlite("shop.db"), |_| {})
        .start()
        .await?;
    app.publisher().publish("orders", &order).key(customer.clone()).await?;
    println!("order {id} is stored");
    app.shutdown().await?;
    Ok(())
}

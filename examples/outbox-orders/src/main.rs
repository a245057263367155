//! A shop writes an order and tells of it in one transaction; billing bills each order once. Whatever is killed in between, no order goes
//! without its bill and none has two. All of it lives in two SQLite files: there is nothing to install.
//!
//! ```text
//! cargo run -p outbox-orders                      # runs the service, until it is told to stop
//! cargo run -p outbox-orders -- order ada tea 3   # places an order, whether the service runs or not
//! cargo run -p outbox-orders -- status            # what was ordered and billed, and what waits
//! cargo run -p outbox-orders -- parked            # what no broker would take, and why
//! cargo run -p outbox-orders -- parked replay     # one more round for all of it
//! ```

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the tools are for")]

mod shop;
#[cfg(test)]
mod tests;
mod tools;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use ruststream_sqlx::SqlxBroker;

use crate::shop::{Order, Shop};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(words: &[&str]) -> Result<(), Failure> {
    let folder = PathBuf::from(std::env::var("OUTBOX_DIR").unwrap_or_else(|_| ".".to_owned()));
    let shop = Shop::open(&format!("sqlite:{}?mode=rwc", folder.join("shop.db").display())).await?;
    match words {
        [] => Ok(shop::app(shop, SqlxBroker::sqlite(folder.join("events.db")))
            .run()
            .await?),
        ["order", customer, article, pieces] => {
            let order = Order {
                customer: (*customer).to_owned(),
                article: (*article).to_owned(),
                pieces: pieces.parse()?,
            };
            println!("order {} is taken", shop.place(&order).await?);
            Ok(())
        }
        ["status"] => tools::status(&shop).await,
        ["parked"] => tools::parked(&shop).await,
        ["parked", "replay"] => tools::replay(&shop).await,
        _ => Err("give nothing, `order CUSTOMER ARTICLE PIECES`, `status`, or `parked [replay]`".into()),
    }
}

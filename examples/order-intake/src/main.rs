//! Orders are taken in from a queue in Postgres. Stock, booking and receipt are written in the transaction that also acks the order:
//! all of it happens once, or none of it, whatever is killed in between.
//!
//! ```text
//! export DATABASE_URL=postgres://postgres@localhost/postgres
//! cargo run -p order-intake                             # takes orders in, until it is told to stop
//! cargo run -p order-intake -- order tea 3              # places one
//! cargo run -p order-intake -- dead-letters             # shows the orders that could not be booked, and why
//! cargo run -p order-intake -- dead-letters replay 7    # one more try for one of them
//! cargo run -p order-intake -- dead-letters purge 7
//! ```

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the tools are for")]

mod intake;
#[cfg(test)]
mod tests;
mod tools;

use std::error::Error;
use std::process::ExitCode;

use ruststream_sqlx::SqlxBroker;

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
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the URL of a Postgres database")?;
    match words {
        [] => {
            intake::prepare(&url).await?;
            Ok(intake::app(SqlxBroker::postgres(&url)).run().await?)
        }
        ["order", article, pieces] => tools::order(&url, article, pieces.parse()?).await,
        ["dead-letters"] => tools::list(&url).await,
        ["dead-letters", "replay", id] => tools::replay(&url, id.parse()?).await,
        ["dead-letters", "purge", id] => tools::purge(&url, id.parse()?).await,
        _ => Err("give nothing, `order ARTICLE PIECES`, or `dead-letters [replay|purge ID]`".into()),
    }
}

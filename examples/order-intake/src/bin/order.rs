//! Places an order: `cargo run -p order-intake --bin order tea 3`.

use order_intake::{Failure, place};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the URL of a Postgres database")?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [article, pieces] = &words[..] else {
        return Err("say an article and how many pieces, such as `tea 3`".into());
    };
    place(&url, article, pieces.parse()?).await
}

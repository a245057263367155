//! What people ask of the shop.

use crate::Failure;
use crate::shop::Shop;

/// How many there are.
pub(crate) async fn count(shop: &Shop, table: &'static str) -> Result<i64, Failure> {
    let text = match table {
        "orders" => "SELECT count(*) FROM orders",
        _ => "SELECT count(DISTINCT order_id) FROM bills",
    };
    Ok(sqlx::query_scalar(text).fetch_one(&shop.pool).await?)
}

pub(crate) async fn status(shop: &Shop) -> Result<(), Failure> {
    let lag = shop.outbox.lag().await?;
    println!(
        "{} orders, {} of them billed",
        count(shop, "orders").await?,
        count(shop, "bills").await?
    );
    println!(
        "{} events wait to be published, {} are parked",
        lag.waiting + lag.scheduled,
        lag.parked
    );
    if let Some(oldest) = lag.oldest {
        println!("the oldest has waited for {oldest:?}");
    }
    Ok(())
}

pub(crate) async fn parked(shop: &Shop) -> Result<(), Failure> {
    let mut after = 0;
    loop {
        let records = shop.outbox.parked().list(after, 100).await?;
        let Some(last) = records.last() else { return Ok(()) };
        after = last.id;
        for record in &records {
            println!(
                "{} to {}, {} attempts: {}",
                record.id, record.destination, record.attempts, record.error
            );
        }
    }
}

pub(crate) async fn replay(shop: &Shop) -> Result<(), Failure> {
    println!(
        "{} events are published again",
        shop.outbox.parked().replay_all().await?
    );
    Ok(())
}

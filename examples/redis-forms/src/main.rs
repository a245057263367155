//! A shop on Redis: orders are a stream that two groups read, parcels a list that packers share, news a channel.
//!
//! `REDIS_URL=redis://localhost:6379 cargo run -p redis-forms` runs it. From another terminal:
//!
//! ```sh
//! redis-cli XADD orders '*' payload '{"id": 7, "article": "hammer"}'
//! redis-cli PUBLISH news.eu '"a sale"'
//! ```

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

#[cfg(test)]
mod tests;

use ruststream::app::AppBuilder;
use ruststream::prelude::*;
use ruststream_fred::{
    Form, RedisBroker, RedisChannel, RedisCommands, RedisList, RedisPublish, RedisStream, Retention,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    article: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Parcel {
    order: u64,
}

/// Bills an order and has it packed. It counts itself with the ack of its order, in one transaction.
#[subscriber("orders")]
async fn bill(order: Order, commands: RedisCommands, parcels: Out<Parcel>) -> Result<(), Failed> {
    if order.article != "hammer" {
        return Err(format!("there is no `{}` in this shop", order.article).into());
    }
    let to_a_list = RedisPublish::default().form(Form::List);
    parcels
        .publish("parcels", &Parcel { order: order.id })
        .options(to_a_list)
        .await?;
    commands.queue("INCR", ["orders:billed"])?;
    Ok(())
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Writes every order down, whatever becomes of it: a group of its own gets every message.
#[subscriber("orders")]
async fn audit(order: Order) {
    println!("order {} of a {}", order.id, order.article);
}

/// Packs a parcel. Any number of processes share the list.
#[subscriber("parcels")]
async fn pack(parcel: Parcel) {
    println!("packed the parcel of order {}", parcel.order);
}

/// Hears of all news.
#[subscriber("news.*")]
async fn hear(news: String) {
    println!("news: {news}");
}

fn shop(redis: RedisBroker) -> AppBuilder<()> {
    RustStream::new(AppInfo::new("shop", env!("CARGO_PKG_VERSION"))).with_broker(redis, |broker| {
        let orders = RedisStream::new("orders").retention(Retention::Acked);
        broker
            .include(bill)
            .source(orders.clone().group("billing").atomic())
            .workers(8)
            .retry(Retry::exponential(Duration::from_millis(200)).attempts(3));
        broker.include(audit).source(orders.group("audit"));
        broker.include(pack).source(RedisList::new("parcels"));
        broker.include(hear).source(RedisChannel::pattern("news.*"));
    })
}

#[ruststream::app]
fn app() -> RustStream {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://localhost:6379".to_owned());
    shop(RedisBroker::standalone(url)).build()
}

//! All the ways out of a service: from handlers and from anywhere, one and many, now and later, by name, by type and by template.

use ruststream::prelude::*;
use ruststream::publish::{Client, RequestError, fill};
use ruststream_rumqttc::MqttOptions;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cart {
    customer: String,
    region: String,
    articles: Vec<String>,
}

/// It knows where it goes: the field in braces is one of its own.
#[derive(Debug, PartialEq, Serialize, Deserialize, Message)]
#[message(destination = "orders.{region}")]
struct Order {
    customer: String,
    region: String,
    articles: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Reminder {
    customer: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Parcel {
    article: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    customer: String,
    pieces: usize,
}

/// What is asked of the stock, and what it answers.
#[derive(Serialize, Deserialize)]
struct InStock(String);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Pieces(u64);

/// One at a time: an order to where its type says, and a reminder for tomorrow.
#[subscriber("carts")]
async fn check_out(cart: Cart, orders: Out<Order>, reminders: Out<Reminder>) -> Result<(), PublishError> {
    let Cart {
        customer,
        region,
        articles,
    } = cart;
    let reminder = Reminder {
        customer: customer.clone(),
    };
    reminders
        .publish("reminders", &reminder)
        .key(customer.clone())
        .delay(TOMORROW)
        // What only MQTT knows. Another broker leaves it alone, as the one of a test does.
        .options(MqttOptions::new().expiry(2 * TOMORROW))
        .await?;
    orders
        .send(&Order {
            customer,
            region,
            articles,
        })
        .await
}

const TOMORROW: Duration = Duration::from_hours(24);

/// Many in one go, each with what is its own: all are confirmed, or the order is tried again.
#[subscriber("orders.*")]
async fn pack(order: Order, parcels: Out<Parcel>) -> Result<(), PublishError> {
    let parcel = |(number, article): (usize, &String)| {
        let parcel = Parcel {
            article: article.clone(),
        };
        // A template that is no type's. What cannot be filled fails where it is published.
        let destination = fill("parcels.{region}", &[("region", &order.region)]);
        parcels
            .publish(destination, &parcel)
            .key(order.customer.clone())
            .header("number", (number + 1).to_string())
    };
    parcels.publish_all(order.articles.iter().enumerate().map(parcel)).await
}

/// Several replies: one to where the attribute says, one to where it says itself.
#[subscriber("payments", reply = "receipts")]
async fn receive(cart: Cart) -> Replies {
    let receipt = Receipt {
        customer: cart.customer.clone(),
        pieces: cart.articles.len(),
    };
    let thanks = format!("thank you, {}", cart.customer);
    Replies::from([
        Reply::new(receipt).key(cart.customer),
        Reply::new(thanks).to("mails").delay(Duration::from_mins(1)),
    ])
}

/// Answers a request, wherever it says.
#[subscriber("stock", reply)]
async fn count(InStock(article): InStock) -> Pieces {
    Pieces(article.len() as u64)
}

/// From anywhere: a web handler, a job, a test. A publisher is cheap to clone and to keep.
async fn import(publisher: &Publisher, carts: &[Cart]) -> Result<(), PublishError> {
    publisher.publish_many("carts", carts).await?;
    publisher
        .publish_bytes("imports", format!("{} carts", carts.len()))
        .await
}

/// A request is a publish that awaits its answer.
async fn stock(client: &Client, article: &str) -> Result<Pieces, RequestError> {
    client
        .request("stock", &InStock(article.to_owned()))
        .timeout(Duration::from_secs(2))
        .await
}

#[ruststream::app]
#[allow(clippy::print_stdout, reason = "an example has no shop window")]
fn app() -> RustStream {
    RustStream::new(AppInfo::new("shop", env!("CARGO_PKG_VERSION")))
        .with_broker(MemoryBroker::new(), |broker| {
            broker.include(check_out);
            broker.include(pack);
            broker.include(receive);
            broker.include(count);
        })
        .after_startup(async |app| {
            let cart = Cart {
                customer: "Ada".to_owned(),
                region: "eu".to_owned(),
                articles: vec!["hammer".to_owned(), "nails".to_owned()],
            };
            import(&app.publisher(), &[cart]).await?;
            let client = app.client().await?;
            println!("{:?} in stock", stock(&client, "hammer").await?);
            Ok(())
        })
}

#[cfg(test)]
mod tests;

//! What people do beside the service: place an order, look at what could not be booked, try it again or throw it away.

use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Connection};
use ruststream_sqlx::{SqlxBroker, publish_in};
use sqlx::Connection as _;

use crate::Failure;
use crate::intake::{ORDERS, Order, connect};

/// Places an order inside a transaction, as a shop would that writes something of its own besides.
pub(crate) async fn order(url: &str, article: &str, pieces: i32) -> Result<(), Failure> {
    let order = Order {
        article: article.to_owned(),
        pieces,
    };
    let payload = serde_json::to_vec(&order)?;
    let mut connection = connect(url).await?;
    let mut tx = connection.begin().await?;
    publish_in(&mut *tx, &[Outgoing::new(ORDERS, &payload)]).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn list(url: &str) -> Result<(), Failure> {
    let connection = SqlxBroker::postgres(url).connect().await?;
    for letter in connection.dead_letters().list(ORDERS, 100).await? {
        let payload = String::from_utf8_lossy(&letter.payload);
        println!("{}: {payload}", letter.id);
        println!(
            "    {} after {} attempts: {}",
            letter.reason, letter.attempts, letter.error
        );
    }
    connection.close().await;
    Ok(())
}

pub(crate) async fn replay(url: &str, id: i64) -> Result<(), Failure> {
    let connection = SqlxBroker::postgres(url).connect().await?;
    let found = connection.dead_letters().replay(id).await?;
    connection.close().await;
    said(id, found, "is ready again")
}

pub(crate) async fn purge(url: &str, id: i64) -> Result<(), Failure> {
    let connection = SqlxBroker::postgres(url).connect().await?;
    let found = connection.dead_letters().purge(id).await?;
    connection.close().await;
    said(id, found, "is gone")
}

fn said(id: i64, found: bool, what: &str) -> Result<(), Failure> {
    if found {
        println!("{id} {what}");
        return Ok(());
    }
    Err(format!("there is no dead letter {id}; `dead-letters` lists them").into())
}

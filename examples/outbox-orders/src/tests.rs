//! The service without a file: an SQLite database in memory, and the in-process broker in the place of its own.

use ruststream::memory::MemoryBroker;
use ruststream::message::header;
use ruststream::testing::TestApp;

use crate::shop::{Order, Placed, Shop, app};
use crate::tools::count;

fn order(customer: &str, pieces: i64) -> Order {
    Order {
        customer: customer.to_owned(),
        article: "tea".to_owned(),
        pieces,
    }
}

#[tokio::test]
async fn each_order_is_told_of_and_billed_once() {
    let shop = Shop::open("sqlite::memory:").await.unwrap();
    let test = TestApp::start(app(shop.clone(), MemoryBroker::new())).await.unwrap();
    for pieces in 1..=3 {
        test.publish("orders", &order("ada", pieces)).await.unwrap();
    }
    test.settled().await;

    let told = test.raw_published("orders.placed");
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|event| event.key.as_deref() == Some(b"ada")));
    let pieces: Vec<_> = test
        .published::<Placed>("orders.placed")
        .iter()
        .map(|placed| placed.pieces)
        .collect();
    assert_eq!(pieces, [1, 2, 3]);

    // The broker delivers one of them again: it takes no effect.
    let again = test
        .publish_bytes("orders.placed", told[0].payload.to_vec())
        .headers(&told[0].headers);
    again.await.unwrap();
    test.settled().await;
    assert_eq!(test.calls::<Placed>("orders.placed").len(), 4);
    assert_eq!(count(&shop, "bills").await.unwrap(), 3);
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM bills")
        .fetch_one(&shop.pool)
        .await
        .unwrap();
    assert_eq!(rows, 3);
    assert!(told[0].headers.get_str(header::MESSAGE_ID).is_some());
    test.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_no_order_is_neither_written_nor_told_of() {
    let shop = Shop::open("sqlite::memory:").await.unwrap();
    let test = TestApp::start(app(shop.clone(), MemoryBroker::new())).await.unwrap();
    test.publish("orders", &order("ada", 0)).await.unwrap();
    test.settled().await;
    assert_eq!(test.dead_letters("orders").len(), 1);
    assert_eq!(count(&shop, "orders").await.unwrap(), 0);
    assert!(test.published::<Placed>("orders.placed").is_empty());
    test.shutdown().await.unwrap();
}

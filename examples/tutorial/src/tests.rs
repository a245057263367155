//! The whole shop, in process and without its file: backoff takes no time.

use std::error::Error;

use ruststream::testing::TestApp;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

fn order(id: u64, customer: &str, cents: i64) -> Order {
    Order {
        id,
        customer: customer.to_owned(),
        cents,
    }
}

fn bank() -> Bank {
    Bank {
        limit: 1_000,
        calls: Arc::default(),
    }
}

#[tokio::test]
async fn every_order_gets_its_receipt_though_the_bank_is_busy_now_and_then() -> TestResult {
    let test = TestApp::start_paused(shop(bank())).await?;

    for id in 1..=3 {
        test.publish("orders", &order(id, "ada", 950)).key("ada").await?;
    }
    test.settled().await;

    let receipts = test.published::<Receipt>("receipts");
    let orders: Vec<_> = receipts.iter().map(|receipt| receipt.order).collect();
    assert_eq!(
        orders,
        [1, 2, 3],
        "the orders of one customer are handled in their order"
    );
    let busy = test.calls::<Order>("confirm").into_iter().filter(|call| !call.is_ok());
    let busy: Vec<_> = busy
        .map(|call| (call.message.id, call.error().map(str::to_owned)))
        .collect();
    assert_eq!(busy, [(3, Some("the bank is busy".to_owned()))]);
    Ok(())
}

#[tokio::test]
async fn an_order_above_the_limit_is_refused_at_once() -> TestResult {
    let test = TestApp::start_paused(shop(bank())).await?;

    test.publish("orders", &order(7, "eve", 5_000)).await?;
    test.settled().await;

    assert_eq!(test.calls::<Order>("refuse")[0].message, order(7, "eve", 5_000));
    let dead = test.dead_letters("orders");
    assert_eq!(dead[0].attempts, 1);
    assert_eq!(dead[0].error, "5000 cents are above the limit of 1000");
    assert!(test.published::<Receipt>("receipts").is_empty());
    Ok(())
}

#[tokio::test]
async fn a_handler_alone_is_a_function() {
    let receipt = Receipt {
        order: 1,
        text: "ada: 950 cents paid".to_owned(),
    };
    mail::call(receipt).await;
}

//! The shop, without a server.

use std::error::Error;

use ruststream::testing::TestApp;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

async fn start() -> Result<TestApp, Box<dyn Error>> {
    // Nobody connects to it.
    let redis = RedisBroker::standalone("redis://localhost:1");
    Ok(TestApp::start_paused(shop(redis)).await?)
}

fn order(id: u64, article: &str) -> Order {
    Order {
        id,
        article: article.to_owned(),
    }
}

#[tokio::test]
async fn both_groups_get_an_order_and_its_parcel_is_packed_once() -> TestResult {
    let test = start().await?;

    test.publish("orders", &order(7, "hammer")).await?;
    test.settled().await;

    assert_eq!(test.calls::<Order>("orders").len(), 2, "one call of each group");
    assert_eq!(test.published::<Parcel>("parcels"), [Parcel { order: 7 }]);
    assert_eq!(test.calls::<Parcel>("parcels").len(), 1);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_billed_is_retried_and_given_up() -> TestResult {
    let test = start().await?;

    test.publish("orders", &order(8, "anvil")).await?;
    test.settled().await;

    // Three of billing, one of the audit.
    assert_eq!(test.calls::<Order>("orders").len(), 4);
    assert_eq!(test.dead_letters("orders")[0].error, "there is no `anvil` in this shop");
    Ok(())
}

#[tokio::test]
async fn news_come_by_pattern() -> TestResult {
    let test = start().await?;

    test.publish("news.eu", "a sale").await?;
    test.publish("gossip", "nothing").await?;
    test.settled().await;

    assert_eq!(test.calls::<String>("news.*").len(), 1);
    Ok(())
}

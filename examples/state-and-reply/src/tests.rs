//! The shop, without its main program.

use std::error::Error;

use ruststream::message::header;
use ruststream::testing::TestApp;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

fn sale(article: &str, pieces: u64) -> Sale {
    Sale {
        article: article.to_owned(),
        pieces,
    }
}

#[tokio::test]
async fn what_is_sold_is_receipted_and_paid() -> TestResult {
    let till = Till::default();
    let test = TestApp::start_paused(shop(MemoryBroker::new(), till.clone())).await?;

    test.publish("sales", &sale("screw", 100)).await?;
    test.publish("sales", &sale("hammer", 2)).await?;
    test.settled().await;

    let mut receipts = test.published::<Receipt>("receipts");
    receipts.sort_by_key(|receipt| receipt.cents);
    assert_eq!(receipts.iter().map(|one| one.cents).collect::<Vec<_>>(), [300, 2_500]);
    assert_eq!(till.0.load(Ordering::Relaxed), 2_800);
    Ok(())
}

#[tokio::test]
async fn an_error_is_no_receipt() -> TestResult {
    let test = TestApp::start_paused(shop(MemoryBroker::new(), Till::default())).await?;

    test.publish("sales", &sale("anvil", 1)).await?;
    test.settled().await;

    assert!(test.raw_published("receipts").is_empty());
    assert_eq!(test.dead_letters("sales")[0].error, "there is no `anvil` in this shop");
    Ok(())
}

#[tokio::test]
async fn who_asks_for_the_receipt_gets_it() -> TestResult {
    let till = Till::default();
    let test = TestApp::start_paused(shop(MemoryBroker::new(), till.clone())).await?;

    test.publish("sales", &sale("screw", 1))
        .header(header::REPLY_TO, "receipts.of-ada")
        .await?;
    test.settled().await;

    assert_eq!(test.published::<Receipt>("receipts.of-ada")[0].cents, 3);
    assert_eq!(till.0.load(Ordering::Relaxed), 0);
    Ok(())
}

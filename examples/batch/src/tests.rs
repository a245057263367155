//! The collector on a clock that stands still, so that the age of a batch is exact.

use std::error::Error;

use ruststream::testing::TestApp;
use ruststream::transport::DeadReason;
use tokio::time::Instant;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

fn reading(meter: u32) -> Reading {
    Reading { meter, watts: 100 }
}

fn sizes(table: &Table) -> Vec<usize> {
    table.inserts().iter().map(Vec::len).collect()
}

#[tokio::test]
async fn a_full_batch_goes_at_once_and_the_rest_when_it_is_old_enough() -> TestResult {
    let table = Table::default();
    let test = TestApp::start_paused(collector(MemoryBroker::new(), table.clone())).await?;
    let begun = Instant::now();

    for meter in 1..=6 {
        test.publish("readings", &reading(meter)).await?;
    }
    test.settled().await;

    assert_eq!(sizes(&table), [4, 2]);
    // The clock goes in steps of a millisecond.
    let waited = begun.elapsed().as_millis();
    assert!((250..=252).contains(&waited), "{waited}");
    Ok(())
}

#[tokio::test]
async fn a_bad_reading_costs_the_others_nothing() -> TestResult {
    let table = Table::default();
    let test = TestApp::start_paused(collector(MemoryBroker::new(), table.clone())).await?;

    let bad = Reading { meter: 2, watts: -1 };
    test.publish("readings", &reading(1)).await?;
    test.publish("readings", &bad).await?;
    test.publish_bytes("readings", "no reading").await?;
    test.publish("readings", &reading(4)).await?;
    test.settled().await;

    assert_eq!(*table.inserts(), [[reading(1), reading(4)]]);
    let dead = test.dead_letters("readings");
    assert_eq!(dead.len(), 2);
    let refused = dead.iter().find(|dead| dead.reason == DeadReason::AttemptsExhausted);
    let refused = refused.ok_or("no reading was refused")?;
    assert_eq!(
        (refused.decode::<Reading>(), refused.error.as_str()),
        (bad, "meter 2 runs backwards")
    );
    assert!(dead.iter().any(|dead| dead.reason == DeadReason::Undecodable));
    Ok(())
}

#[tokio::test]
async fn the_handler_alone_needs_no_app() {
    let readings = [reading(1), Reading { meter: 2, watts: -1 }];

    let outcomes = store::call(&readings, State(Table::default())).await;

    assert_eq!(outcomes, [Ok(()), Err("meter 2 runs backwards".to_owned())]);
}

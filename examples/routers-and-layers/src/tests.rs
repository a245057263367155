//! The order of layers, as their documentation tells it.

use std::error::Error;

use ruststream::testing::TestApp;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

/// What the layers and the handler noted of one message.
async fn noted(event: &str, real: &'static str) -> Result<Vec<String>, Box<dyn Error>> {
    let diary = Diary::default();
    let test = TestApp::start_paused(company(MemoryBroker::new(), diary.clone())).await?;
    let name = format!("berlin.shelves.{event}");
    test.publish(name, "screw").header("real", real).await?;
    test.settled().await;
    Ok(std::mem::take(&mut *diary.lines()))
}

#[tokio::test]
async fn the_outer_layer_sees_a_call_first_and_its_end_last() -> TestResult {
    let expected = [
        "outer sees berlin.shelves.filled",
        "inner sees berlin.shelves.filled",
        "screw is on its shelf",
        "inner is told: it was handled",
        "outer is told: it was handled",
    ];
    assert_eq!(noted("filled", "yes").await?, expected);
    Ok(())
}

#[tokio::test]
async fn what_one_layer_does_not_pass_on_is_seen_by_none_inside() -> TestResult {
    let expected = ["outer sees berlin.shelves.filled", "outer is told: it was not handled"];
    assert_eq!(noted("filled", "no").await?, expected);
    Ok(())
}

#[tokio::test]
async fn layers_see_the_error_itself() -> TestResult {
    let lines = noted("emptied", "yes").await?;
    let expected = [
        "inner is told: the supplier is closed",
        "outer is told: the supplier is closed",
    ];
    assert_eq!(lines[2..], expected);
    Ok(())
}

#[test]
fn prefixes_nest() -> TestResult {
    let wiring = company(MemoryBroker::new(), Diary::default()).build().check()?;

    assert!(wiring[0].contains("berlin.shelves.filled"), "{wiring:?}");
    assert!(wiring[1].contains("berlin.shelves.emptied"), "{wiring:?}");
    Ok(())
}

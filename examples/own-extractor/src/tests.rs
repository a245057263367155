//! What becomes of messages that an extractor accepts or rejects.

use std::error::Error;

use ruststream::testing::{CallOutcome, TestApp};

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

/// The office, when an offer with these headers has been dealt with.
async fn offered(headers: &[(&'static str, &'static str)]) -> Result<TestApp, Box<dyn Error>> {
    let test = TestApp::start_paused(office(MemoryBroker::new())).await?;
    let headers = headers.iter().copied().collect();
    test.publish("offers", "a hammer").headers(&headers).await?;
    test.settled().await;
    Ok(test)
}

#[tokio::test]
async fn a_customer_gets_a_letter() -> TestResult {
    let test = offered(&[("customer", "Ada"), ("until", "2030-12-31")]).await?;

    assert_eq!(
        test.published::<String>("letters"),
        ["Dear Ada, we offer you a hammer."]
    );
    Ok(())
}

#[tokio::test]
async fn a_customer_who_is_not_known_is_asked_for_again() -> TestResult {
    let test = offered(&[("customer", "Eve")]).await?;

    let dead = test.dead_letters("offers");
    assert_eq!(
        (dead[0].attempts, dead[0].error.as_str()),
        (3, "`Eve` is no customer yet")
    );
    assert!(test.raw_published("letters").is_empty());
    Ok(())
}

#[tokio::test]
async fn an_offer_for_nobody_is_a_dead_letter_at_once() -> TestResult {
    let test = offered(&[]).await?;

    let dead = test.dead_letters("offers");
    assert_eq!(
        (dead[0].attempts, dead[0].error.as_str()),
        (1, "the header `customer` is missing")
    );
    Ok(())
}

#[tokio::test]
async fn what_is_not_wanted_any_more_is_thrown_away() -> TestResult {
    let test = offered(&[("customer", "Ada"), ("until", "2030-05-31")]).await?;

    let calls = test.raw_calls("offers");
    assert_eq!(calls[0].outcome, CallOutcome::Said(HandlerOutcome::drop()));
    assert!(test.dead_letters("offers").is_empty() && test.raw_published("letters").is_empty());
    Ok(())
}

#[tokio::test]
async fn the_handler_alone_takes_them_as_values() {
    let letter = write::call("a hammer".to_owned(), Wanted, Customer("Grace")).await;

    assert_eq!(letter, "Dear Grace, we offer you a hammer.");
}

//! The shop as a whole, without its database: hours pass in milliseconds.

use std::error::Error;

use ruststream::testing::TestApp;
use ruststream::transport::DeadReason;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

fn bank_that_opens_in(time: Duration) -> Bank {
    Bank {
        opens: Instant::now() + time,
    }
}

#[tokio::test]
async fn an_order_waits_an_hour_for_the_bank_and_is_confirmed() -> TestResult {
    let test = TestApp::start_paused(shop(bank_that_opens_in(Duration::from_hours(1)))).await?;

    let order = Order { id: 7, cents: 99 };
    test.publish("orders", &order).header("sender", "checkout").await?;
    test.settled().await;

    assert_eq!(test.published::<Receipt>("receipts"), [Receipt { order: 7 }]);
    let calls = test.calls::<Order>("confirm");
    assert_eq!(calls.len(), 7);
    assert_eq!(calls[0].error(), Some("the bank is closed"));
    assert_eq!(calls[6].attempt, 7);
    assert!(calls[6].is_ok());
    Ok(())
}

#[tokio::test]
async fn a_declined_card_is_a_dead_letter_at_once() -> TestResult {
    let test = TestApp::start_paused(shop(bank_that_opens_in(Duration::ZERO))).await?;

    let order = Order { id: 8, cents: 100_000 };
    test.publish("orders", &order).header("sender", "checkout").await?;
    test.settled().await;

    let dead = test.dead_letters("orders");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].decode::<Order>(), order);
    assert_eq!(dead[0].error, "the card is declined");
    assert_eq!(dead[0].attempts, 1);
    assert_eq!(test.raw_published("orders.refused").len(), 1);
    assert!(test.published::<Receipt>("receipts").is_empty());
    Ok(())
}

#[tokio::test]
async fn a_bank_that_stays_closed_uses_up_ten_attempts() -> TestResult {
    let test = TestApp::start_paused(shop(bank_that_opens_in(Duration::from_hours(24)))).await?;

    let order = Order { id: 9, cents: 99 };
    test.publish("orders", &order).header("sender", "checkout").await?;
    test.settled().await;

    assert_eq!(test.calls::<Order>("confirm").len(), 10);
    assert_eq!(test.dead_letters("orders")[0].reason, DeadReason::AttemptsExhausted);
    Ok(())
}

#[tokio::test]
async fn what_the_checkout_did_not_send_is_kept_and_not_charged() -> TestResult {
    let test = TestApp::start_paused(shop(bank_that_opens_in(Duration::ZERO))).await?;

    test.publish("orders", &Order { id: 10, cents: 99 }).await?;
    test.settled().await;

    let dead = test.dead_letters("orders");
    assert_eq!(dead[0].reason, DeadReason::Rejected);
    assert_eq!(dead[0].error, "the checkout did not send it");
    Ok(())
}

#[tokio::test]
async fn the_handler_alone_needs_no_app() {
    let bank = State(bank_that_opens_in(Duration::ZERO));

    let confirmed = confirm::call(Order { id: 7, cents: 99 }, bank.clone()).await;
    let refused = confirm::call(Order { id: 8, cents: 100_000 }, bank).await;

    assert_eq!(confirmed, Ok(Receipt { order: 7 }));
    assert_eq!(refused, Err(BankError::Declined));
}

/// What the project's first page shows is this code.
#[test]
fn the_readme_shows_this_service_and_a_test_of_it() {
    let readme = include_str!("../../../README.md");
    let shown = |source: &str, begin: &str, end: &str| {
        let part = &source[source.find(begin).expect(begin)..];
        let part = &part[..part.find(end).map_or(part.len(), |at| at + end.len())];
        assert!(readme.contains(part), "README.md does not show this:\n{part}");
    };

    shown(include_str!("main.rs"), "use ruststream::handler", "\n\n\n");
    let tests = include_str!("tests.rs");
    shown(tests, "fn bank_that_opens_in", "\n}\n");
    shown(tests, "#[tokio::test]\nasync fn an_order_waits", "\n}\n");
}

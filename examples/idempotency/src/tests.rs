//! Each payment once, however it comes.

use ruststream::testing::TestApp;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

fn to(account: &str) -> Payment {
    Payment {
        account: account.to_owned(),
        cents: 950,
    }
}

/// What was paid of payments with these ids, published one after the other.
async fn paid(payments: &[(&'static str, Payment)]) -> Result<Vec<Payment>, Box<dyn Error>> {
    let book = Book::default();
    let test = TestApp::start_paused(bank(MemoryBroker::new(), book.clone())).await?;
    for (id, payment) in payments {
        test.publish("payments", payment)
            .header(header::MESSAGE_ID, *id)
            .await?;
    }
    test.settled().await;
    assert!(test.dead_letters("payments").is_empty());
    assert_eq!(test.published::<String>("notices").len(), book.payments().len());
    Ok(std::mem::take(&mut *book.payments()))
}

#[tokio::test]
async fn a_payment_that_is_published_again_is_made_once() -> TestResult {
    assert_eq!(paid(&[("a1", to("ada")), ("a1", to("ada"))]).await?, [to("ada")]);
    Ok(())
}

#[tokio::test]
async fn two_payments_that_look_alike_are_two() -> TestResult {
    assert_eq!(paid(&[("a1", to("ada")), ("a2", to("ada"))]).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_payment_that_failed_leaves_no_mark_and_is_made_at_its_retry() -> TestResult {
    assert_eq!(paid(&[("b2", to("slow")), ("b2", to("slow"))]).await?, [to("slow")]);
    Ok(())
}

//! A caller asks for a price and awaits the answer; a handler gives it. Both stand in one service here and may as well be two.

use ruststream::prelude::*;
use ruststream::publish::{Client, RequestError};

/// What is asked.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Quote {
    article: String,
    pieces: u64,
}

/// What is answered.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    Cents(u64),
    Unknown,
}

/// Answers wherever the request says. "I do not know" is an answer too: an error would be tried again while the caller waits.
#[subscriber("quotes", reply)]
async fn estimate(asked: Quote) -> Answer {
    match asked.article.as_str() {
        "screw" => Answer::Cents(asked.pieces * 3),
        "hammer" => Answer::Cents(asked.pieces * 1_250),
        _ => Answer::Unknown,
    }
}

/// Asks for the price of a shopping list, all articles at a time; `None` where one of them is not sold.
async fn price(client: &Client, list: &[(&str, u64)]) -> Result<Option<u64>, RequestError> {
    let requests: Vec<_> = list
        .iter()
        .map(|(article, pieces)| {
            let quote = Quote {
                article: (*article).to_owned(),
                pieces: *pieces,
            };
            let request = client.request::<Quote, Answer>("quotes", &quote);
            tokio::spawn(request.timeout(Duration::from_secs(2)).into_future())
        })
        .collect();
    let mut total = Some(0);
    for request in requests {
        let answer = request.await.expect("a request does not panic")?;
        total = match answer {
            Answer::Cents(cents) => total.map(|total| total + cents),
            Answer::Unknown => None,
        };
    }
    Ok(total)
}

#[ruststream::app]
#[allow(clippy::print_stdout, reason = "an example has no till")]
fn app() -> RustStream {
    RustStream::new(AppInfo::new("prices", env!("CARGO_PKG_VERSION")))
        .with_broker(MemoryBroker::new(), |broker| {
            broker.include(estimate).workers(4);
        })
        .after_startup(async |app| {
            let client = app.client().await?;
            let total = price(&client, &[("screw", 100), ("hammer", 1)]).await?;
            println!("100 screws and a hammer: {total:?} cents");
            Ok(())
        })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use ruststream::testing::TestApp;

    use super::*;

    type TestResult = Result<(), Box<dyn Error>>;

    #[tokio::test]
    async fn a_list_is_priced() -> TestResult {
        let test = TestApp::start_paused(app()).await?;
        let client = test.client().await?;

        assert_eq!(price(&client, &[("screw", 10), ("hammer", 2)]).await?, Some(2_530));
        assert_eq!(price(&client, &[("anvil", 1), ("hammer", 2)]).await?, None);
        Ok(())
    }

    #[tokio::test]
    async fn a_caller_does_not_wait_for_ever() -> TestResult {
        let test = TestApp::start_paused(app()).await?;
        let client = test.client().await?;
        test.handle().pause("quotes");

        let error = price(&client, &[("screw", 10)]).await;

        assert!(error.is_err_and(|error| error.is_timeout()));
        Ok(())
    }
}

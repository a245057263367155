//! Messages of one key, among many workers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Book, Harness, Rig, Service, Violation, ensure, failed_with, numbered};
use crate::handler::Outcome;
use crate::message::{HeaderMap, Outgoing};
use crate::policy::{OrderBy, Retry};

const LANE: &str = "lane";

/// How an app can tell the keys of messages on this transport: by their keys, or else by a header.
fn order_by<H: Harness>(rig: &Rig<'_, H>) -> Option<OrderBy> {
    let features = rig.features();
    if features.keys {
        Some(OrderBy::key())
    } else {
        features.headers.then(|| OrderBy::header(LANE))
    }
}

/// Publishes messages with their keys, in one call.
async fn publish_keyed<H: Harness>(rig: &Rig<'_, H>, messages: &[(String, String)]) -> Result<(), Violation> {
    let lanes: Vec<HeaderMap> = messages
        .iter()
        .map(|(key, _)| [(LANE, key.clone())].into_iter().collect())
        .collect();
    let outgoing: Vec<_> = messages
        .iter()
        .zip(&lanes)
        .map(|((key, text), lane)| {
            let outgoing = Outgoing::new(&rig.name, text.as_bytes());
            if rig.features().keys {
                outgoing.with_key(key.as_bytes())
            } else {
                outgoing.with_headers(lane)
            }
        })
        .collect();
    rig.publish(&outgoing).await
}

/// Checks that eight workers handle the messages of each key one after the other, in the order of their publishing, through
/// retries too.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_keeps_the_order_of_each_key<H: Harness>(harness: &H) -> Result<(), Violation> {
    const KEYS: usize = 6;
    const EACH: usize = 12;
    let rig = Rig::new(harness).await?;
    let Some(order) = order_by(&rig).filter(|_| rig.features().orders && rig.features().stores) else {
        return Ok(());
    };
    let sent: Vec<_> = (0..KEYS * EACH)
        .map(|number| {
            (
                format!("key {}", number % KEYS),
                format!("{} of key {}", number / KEYS, number % KEYS),
            )
        })
        .collect();
    let fails_once = |text: &str| text.starts_with("2 ") || text.starts_with("7 ");
    publish_keyed(&rig, &sent).await?;

    let book = Book::new();
    let handler = book.handler(move |run| async move {
        sleep(Duration::from_millis(1)).await;
        if fails_once(&run.text) && run.attempt == 1 {
            failed_with("the check lets this attempt fail")
        } else {
            Outcome::ACK
        }
    });
    let service = Service::start(&rig, handler, |subscription| {
        let retry = Retry::fixed(Duration::from_millis(20));
        subscription.workers(8).ordered_by(order).retry(retry);
    })
    .await?;
    let retried = sent.iter().filter(|(_, text)| fails_once(text)).count();
    book.ended(sent.len() + retried, rig.deadline()).await?;
    service.stop().await?;

    let runs = book.runs();
    for key in 0..KEYS {
        let key = format!("key {key}");
        let expected: Vec<_> = sent
            .iter()
            .filter(|(of, _)| *of == key)
            .flat_map(|(_, text)| vec![text.as_str(); 1 + usize::from(fails_once(text))])
            .collect();
        let of_key: Vec<_> = runs.iter().filter(|run| run.text.ends_with(&key)).collect();
        let came: Vec<_> = of_key.iter().map(|run| run.text.as_str()).collect();
        ensure!(
            came == expected,
            "the messages of {key} were to be handled as {expected:?}, and were as {came:?}"
        );
        for pair in of_key.windows(2) {
            ensure!(
                pair[0].ended.is_some_and(|ended| ended <= pair[1].began),
                "{} began before {} of the same key had ended",
                pair[1].text,
                pair[0].text,
            );
        }
    }
    Ok(())
}

/// Checks that a key whose message takes long holds up no other key, though more of its messages wait.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_lets_no_key_block_others<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let Some(order) = order_by(&rig).filter(|_| rig.features().stores) else {
        return Ok(());
    };
    let others = numbered(20);
    let hot: Vec<_> = (0..5).map(|number| format!("hot {number}")).collect();
    let keyed = |texts: &[String], key: Option<&str>| -> Vec<_> {
        let pairs = texts.iter().map(|text| (key.unwrap_or(text).to_owned(), text.clone()));
        pairs.collect()
    };
    publish_keyed(&rig, &keyed(&hot, Some("hot"))).await?;
    publish_keyed(&rig, &keyed(&others, None)).await?;

    let book = Book::new();
    let go_on = Arc::new(CancellationToken::new());
    let waits = go_on.clone();
    let handler = book.handler(move |run| {
        let waits = waits.clone();
        async move {
            if run.text.starts_with("hot") {
                waits.cancelled().await;
            }
            Outcome::ACK
        }
    });
    let service = Service::start(&rig, handler, |subscription| {
        subscription.workers(2).ordered_by(order);
    })
    .await?;
    let flowed = book.ended(others.len(), rig.deadline()).await;
    go_on.cancel();
    flowed.map_err(|violation| Violation::new(format!("while the messages of one key wait: {violation}")))?;
    let all: Vec<_> = hot.into_iter().chain(others).collect();
    book.each_once(&all, rig.deadline()).await?;
    service.stop().await.map(drop)
}

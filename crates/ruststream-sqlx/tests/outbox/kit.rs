//! Short words for what the tests do.

use std::time::Duration;

use ruststream::app::Running;
use ruststream::prelude::*;
use ruststream_sqlx::{Outbox, Relay};

use crate::picky::Picky;
use crate::place::{Database, Place};

/// Nothing here takes so long: what does is stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An outbox with its tables.
pub(crate) async fn outbox(place: &Place) -> Outbox<Database> {
    let outbox = Outbox::new(place.pool().await);
    outbox.prepare().await.unwrap();
    outbox
}

/// A relay that does not keep a test waiting.
pub(crate) fn quick(outbox: &Outbox<Database>) -> Relay<Database> {
    outbox
        .relay()
        .poll_interval(Duration::from_millis(20))
        .backoff(ruststream::policy::Backoff::fixed(Duration::from_millis(30)))
}

/// An app with nothing but a relay.
pub(crate) async fn relaying(broker: &Picky, relay: Relay<Database>) -> Running {
    RustStream::new(AppInfo::new("relay", "1.0.0"))
        .with_broker(broker.clone(), |_| {})
        .shutdown_grace(Duration::from_secs(5))
        .background(relay)
        .start()
        .await
        .unwrap()
}

/// Writes numbers under a key, in a transaction of their own.
pub(crate) async fn write(outbox: &Outbox<Database>, place: &Place, key: &str, numbers: std::ops::RangeInclusive<u64>) {
    let pool = place.pool().await;
    let mut tx = pool.begin().await.unwrap();
    let messages = numbers.map(|number| {
        let message = outbox.message("orders", &number);
        if key.is_empty() {
            message
        } else {
            message.key(key.to_owned())
        }
    });
    outbox.publish_all(&mut tx, messages).await.unwrap();
    tx.commit().await.unwrap();
}

/// Looks until `there` says yes: for what has no signal of its own.
pub(crate) async fn eventually<T>(mut look: impl AsyncFnMut() -> T, there: impl Fn(&T) -> bool) -> T {
    let looking = async {
        loop {
            let seen = look().await;
            if there(&seen) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it never came")
}

/// Waits until nothing is left to be published but so many that are parked.
pub(crate) async fn drained(outbox: &Outbox<Database>, parked: u64) {
    let lag = async || outbox.lag().await.unwrap();
    eventually(lag, |lag| {
        lag.waiting == 0 && lag.scheduled == 0 && lag.parked == parked
    })
    .await;
}

pub(crate) fn texts(range: std::ops::RangeInclusive<u64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

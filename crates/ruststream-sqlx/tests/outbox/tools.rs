//! What people ask of an outbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ruststream::transport::ErrorKind;

use crate::kit::{drained, outbox, quick, relaying, texts, write};
use crate::picky::Picky;
use crate::place::Place;

#[tokio::test]
async fn parked_records_are_listed_replayed_and_purged() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let refuses = Arc::new(AtomicBool::new(true));
    let rule = refuses.clone();
    let broker = Picky::refusing(move |_, _| rule.load(Ordering::SeqCst).then_some(ErrorKind::Refused));
    write(&outbox, &place, "", 1..=5).await;
    let running = relaying(&broker, quick(&outbox).attempts(2)).await;
    drained(&outbox, 5).await;

    let first = outbox.parked().list(0, 2).await.unwrap();
    assert_eq!(
        first.iter().map(|one| one.payload.clone()).collect::<Vec<_>>(),
        [b"1", b"2"]
    );
    assert!(first[0].parked_at >= first[0].written_at);
    assert_eq!(first[0].destination, "orders");
    assert!(first[0].headers.get_str("message-id").is_some());
    let rest = outbox.parked().list(first[1].id, 10).await.unwrap();
    assert_eq!(rest.len(), 3);

    assert_eq!(outbox.parked().purge(&[rest[2].id]).await.unwrap(), 1);
    assert_eq!(outbox.parked().keep_attempts().replay(&[rest[1].id]).await.unwrap(), 1);
    // One attempt more, and it is back.
    drained(&outbox, 4).await;
    refuses.store(false, Ordering::SeqCst);
    assert_eq!(outbox.parked().replay(&[first[0].id]).await.unwrap(), 1);
    drained(&outbox, 3).await;
    assert_eq!(broker.of(""), ["1"]);
    assert_eq!(outbox.parked().replay_all().await.unwrap(), 3);
    drained(&outbox, 0).await;
    let mut all = broker.of("");
    all.sort();
    assert_eq!(all, texts(1..=4));
    assert_eq!(outbox.parked().purge_all().await.unwrap(), 0);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_lag_tells_what_waits_and_for_how_long() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    assert_eq!(outbox.lag().await.unwrap().oldest, None);
    write(&outbox, &place, "", 1..=3).await;
    let pool = place.pool().await;
    let mut tx = pool.begin().await.unwrap();
    outbox
        .publish(&mut tx, "orders", &4_u64)
        .delay(Duration::from_hours(1))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    tokio::time::sleep(Duration::from_millis(60)).await;
    let lag = outbox.lag().await.unwrap();
    assert_eq!((lag.waiting, lag.scheduled, lag.parked), (3, 1, 0));
    let oldest = lag.oldest.unwrap();
    assert!(
        oldest >= Duration::from_millis(50) && oldest < Duration::from_secs(20),
        "{oldest:?}"
    );
}

//! The end of an app: what its last handler left to the outbox is still published.

use std::time::Duration;

use ruststream::prelude::*;
use ruststream_sqlx::Outbox;

use crate::kit::{outbox, quick};
use crate::picky::Picky;
use crate::place::{Database, Place, Pool};

#[derive(Clone)]
struct Shop {
    pool: Pool,
    outbox: Outbox<Database>,
    begun: std::sync::Arc<tokio::sync::Notify>,
}

#[subscriber("orders")]
async fn take(order: u64, State(shop): State<Shop>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    shop.begun.notify_one();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut tx = shop.pool.begin().await?;
    shop.outbox.publish(&mut tx, "taken", &order).await?;
    // Without a word to the relay.
    tx.commit().await?;
    Ok(())
}

#[tokio::test]
async fn what_the_last_handler_wrote_is_published_before_the_app_ends() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let shop = Shop {
        pool: place.pool().await,
        outbox: outbox.clone(),
        begun: std::sync::Arc::default(),
    };
    let broker = Picky::new();
    let running = RustStream::new(AppInfo::new("shop", "1.0.0"))
        .state(shop.clone())
        .with_broker(broker.clone(), |broker| {
            broker.include(take);
        })
        .background(quick(&outbox).poll_interval(Duration::from_mins(1)))
        .start()
        .await
        .unwrap();
    running.publisher().publish("orders", &7_u64).await.unwrap();
    shop.begun.notified().await;
    running.shutdown().await.unwrap();
    let taken = broker.taken();
    assert_eq!(
        taken.last().map(|one| one.destination.as_str()),
        Some("taken"),
        "{taken:?}"
    );
    assert_eq!(outbox.lag().await.unwrap().waiting, 0);
}

/// A relay whose app is stopped in the middle of a backlog leaves nothing held: another goes on at once.
#[tokio::test]
async fn a_stop_in_the_middle_leaves_the_rest_to_others_at_once() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    crate::kit::write(&outbox, &place, "a", 1..=500).await;
    let broker = Picky::new();
    let first = RustStream::new(AppInfo::new("relay", "1.0.0"))
        .with_broker(broker.clone(), |_| {})
        .shutdown_grace(Duration::from_millis(1))
        .background(quick(&outbox).batch(10))
        .start()
        .await
        .unwrap();
    crate::kit::eventually(async || broker.taken().len(), |taken| *taken > 0).await;
    first.shutdown().await.unwrap();
    let second = crate::kit::relaying(&broker, quick(&outbox)).await;
    crate::kit::drained(&outbox, 0).await;
    assert_eq!(broker.of("a"), crate::kit::texts(1..=500));
    second.shutdown().await.unwrap();
}

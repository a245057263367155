//! The transaction that an inbox lends to its handler serves the outbox as any other: data, event, receipt and ack commit together.

use ruststream::message::header;
use ruststream::prelude::*;
use ruststream_sqlx::{Once, Outbox, Tx};

use crate::kit::{drained, eventually, outbox, quick, relaying};
use crate::picky::Picky;
use crate::place::{Database, Lent, Place};

#[derive(Clone)]
struct Shop {
    outbox: Outbox<Database>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[subscriber("incoming")]
async fn book(
    order: u64,
    mut tx: Tx<Lent>,
    once: Once,
    context: Context<'_>,
    State(shop): State<Shop>,
) -> Result<(), Failure> {
    if once.first(&mut *tx).await? {
        shop.outbox.publish(&mut tx, "booked", &order).await?;
    }
    if context.attempt() == 1 {
        return Err("the first time it fails, and nothing of it stays".into());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_event_of_a_lent_transaction_commits_with_the_ack() {
    let place = Place::new().await;
    let outbox = outbox(&place).await;
    let inbox = RustStream::new(AppInfo::new("booking", "1.0.0"))
        .state(Shop { outbox: outbox.clone() })
        .with_broker(place.inbox(), |broker| {
            broker
                .include(book)
                .retry(Retry::fixed(Duration::from_millis(5)).attempts(5));
        })
        .start()
        .await
        .unwrap();
    // Each order comes twice, as a sender sends it that was in doubt.
    for order in [1_u64, 2, 3, 1, 2, 3] {
        let sent = inbox.publisher().publish("incoming", &order);
        sent.header(header::MESSAGE_ID, format!("order-{order}")).await.unwrap();
    }
    eventually(async || inbox.health().subscriptions[0].acked, |acked| *acked == 6).await;
    assert_eq!(outbox.lag().await.unwrap().waiting, 3);
    let broker = Picky::new();
    let relay = relaying(&broker, quick(&outbox)).await;
    drained(&outbox, 0).await;
    let mut booked = broker.of("");
    booked.sort();
    assert_eq!(booked, ["1", "2", "3"]);
    relay.shutdown().await.unwrap();
    inbox.shutdown().await.unwrap();
}

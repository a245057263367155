//! What comes twice takes effect once, where the consumer writes down what it has handled.

use std::time::Duration;

use ruststream::message::header;
use ruststream::prelude::*;
use ruststream_sqlx::{Once, Receipts};
use sqlx::Executor;

use crate::kit::outbox;
use crate::place::{Place, Pool};

#[derive(Clone)]
struct Bank {
    pool: Pool,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[subscriber("payments")]
async fn pay(payment: u64, once: Once, State(bank): State<Bank>, context: Context<'_>) -> Result<(), Failure> {
    let mut tx = bank.pool.begin().await?;
    if !once.first(&mut *tx).await? {
        return Ok(());
    }
    tx.execute("INSERT INTO effects (id) VALUES (1)").await?;
    if payment == 13 && context.attempt() == 1 {
        return Err("the first time it fails, and nothing of it stays".into());
    }
    tx.commit().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_takes_effect_once_however_often_it_comes() {
    let place = Place::new().await;
    outbox(&place).await;
    place.sql("CREATE TABLE effects (id BIGINT NOT NULL)").await;
    let memory = MemoryBroker::new();
    let bank = Bank {
        pool: place.pool().await,
    };
    let running = RustStream::new(AppInfo::new("bank", "1.0.0"))
        .state(bank)
        .with_broker(memory.clone(), |broker| {
            broker
                .include(pay)
                .workers(4)
                .retry(Retry::fixed(Duration::from_millis(20)).attempts(20));
        })
        .start()
        .await
        .unwrap();
    for _ in 0..3 {
        for payment in 1..=20_u64 {
            let id = format!("payment-{payment}");
            let sent = running
                .publisher()
                .publish("payments", &payment)
                .header(header::MESSAGE_ID, id);
            sent.await.unwrap();
        }
    }
    memory.idle("payments").await;
    assert_eq!(place.number("SELECT count(*) FROM effects").await, 20);
    assert_eq!(memory.dead_letters("payments").len(), 0);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn receipts_are_kept_for_their_time_and_pruned_in_batches() {
    let place = Place::new().await;
    outbox(&place).await;
    let text = match place.url().split(':').next() {
        Some("mysql") => {
            "INSERT INTO ruststream_receipts (consumer, message_id, received_at) SELECT 'c', seq, 1000 FROM seq_1_to_2500"
        }
        Some("sqlite") => {
            "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 2500) \
             INSERT INTO ruststream_receipts (consumer, message_id, received_at) SELECT 'c', n, 1000 FROM s"
        }
        _ => {
            "INSERT INTO ruststream_receipts (consumer, message_id, received_at) SELECT 'c', n, 1000 FROM generate_series(1, 2500) AS n"
        }
    };
    place.sql(text).await;
    place
        .sql("INSERT INTO ruststream_receipts (consumer, message_id) VALUES ('c', 'new')")
        .await;
    let receipts = Receipts::new(place.pool().await).keep(Duration::from_hours(1));
    assert_eq!(receipts.prune().await.unwrap(), 2500);
    assert_eq!(place.number("SELECT count(*) FROM ruststream_receipts").await, 1);
}

//! The tables: made once by any number of processes, or by people, and refused where they are of a later version.

use ruststream_sqlx::Outbox;

use crate::kit::{outbox, write};
use crate::place::{Database, Place};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_that_start_at_once_make_the_tables_once() {
    let place = Place::new().await;
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let outbox = Outbox::new(place.pool().await);
        starting.spawn(async move { outbox.prepare().await });
    }
    while let Some(prepared) = starting.join_next().await {
        prepared.unwrap().unwrap();
    }
    let outbox = Outbox::new(place.pool().await);
    write(&outbox, &place, "a", 1..=3).await;
    assert_eq!(outbox.lag().await.unwrap().waiting, 3);
}

#[tokio::test]
async fn people_make_the_tables_by_the_statements_that_are_printed() {
    let place = Place::new().await;
    let outbox = Outbox::new(place.pool().await).migrate(false);
    let error = outbox.prepare().await.unwrap_err();
    assert!(error.to_string().contains("Outbox::ddl()"), "{error}");
    place.sql(&Outbox::<Database>::ddl()).await;
    outbox.prepare().await.unwrap();
    write(&outbox, &place, "a", 1..=3).await;
}

#[tokio::test]
async fn tables_of_a_later_version_are_refused() {
    let place = Place::new().await;
    outbox(&place).await;
    place
        .sql("UPDATE ruststream_meta SET version = 99 WHERE name = 'ruststream_outbox'")
        .await;
    let error = Outbox::new(place.pool().await).prepare().await.unwrap_err();
    assert!(
        error.to_string().contains("99") && error.to_string().contains("upgrade"),
        "{error}"
    );
    assert!(!error.is_transient());
}

#[tokio::test]
async fn whoever_writes_without_tables_is_told_how_they_are_made() {
    let place = Place::new().await;
    let outbox = Outbox::new(place.pool().await);
    let pool = place.pool().await;
    let mut tx = pool.begin().await.unwrap();
    let error = outbox.publish(&mut tx, "orders", &1_u64).await.unwrap_err();
    assert!(error.to_string().contains("Outbox::prepare"), "{error}");
}

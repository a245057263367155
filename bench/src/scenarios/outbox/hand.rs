//! An outbox written by hand: a record before each publish, fetched and marked by the handler.

use ruststream::prelude::Publisher;
use sqlx::postgres::PgPool;
use sqlx::{Executor as _, Row as _};

use crate::scenarios::work::NotedOrder;
use crate::suite::Failed;

/// The records.
pub(super) const TABLE: &str = "CREATE TABLE records (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, destination text NOT NULL, payload bytea NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(), handled_at timestamptz
)";

/// The header that names a record.
pub(super) const RECORD: &str = "record";

/// Records a message and publishes it.
pub(super) async fn publish(
    pool: &PgPool,
    publisher: &Publisher,
    destination: &'static str,
    order: &NotedOrder,
) -> Result<(), Failed> {
    let payload = crate::scenarios::work::encoded(order);
    let insert = sqlx::query("INSERT INTO records (destination, payload) VALUES ($1, $2) RETURNING id");
    let row = pool.fetch_one(insert.bind(destination).bind(payload)).await?;
    let id: i64 = row.try_get(0)?;
    publisher
        .publish(destination, order)
        .header(RECORD, id.to_string())
        .await?;
    Ok(())
}

/// Fetches the record of a message; false where it was handled before.
pub(super) async fn fetch(pool: &PgPool, id: i64) -> Result<bool, sqlx::Error> {
    let select = sqlx::query("SELECT handled_at IS NULL FROM records WHERE id = $1").bind(id);
    pool.fetch_one(select).await?.try_get(0)
}

/// Marks the record of a message, unless someone else did.
pub(super) async fn mark(pool: &PgPool, id: i64) -> Result<bool, sqlx::Error> {
    let update = sqlx::query("UPDATE records SET handled_at = now() WHERE id = $1 AND handled_at IS NULL").bind(id);
    Ok(pool.execute(update).await?.rows_affected() == 1)
}

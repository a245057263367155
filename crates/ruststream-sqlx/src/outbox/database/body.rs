//! What all databases do by the same statements, written once for each of sqlx's types.

/// The operations that differ in nothing but the type of the database. `$lists` is the module that has what differs: how lists of ids
/// stand in a statement.
macro_rules! same_for_all {
    ($dialect:expr) => {
        async fn waiting(connection: &mut Self::Connection) -> Done<Waiting> {
            static TEXT: LazyLock<String> = LazyLock::new(|| $dialect.text(statements::WAITING));
            let row = sqlx::query(TEXT.as_str()).fetch_one(connection).await?;
            Ok(Waiting {
                ready: row.try_get_unchecked(0)?,
                scheduled: row.try_get_unchecked(1)?,
                parked: row.try_get_unchecked(2)?,
                oldest: row.try_get_unchecked(3)?,
            })
        }

        async fn given_up(connection: &mut Self::Connection, after: i64, limit: i64) -> Done<Vec<GivenUp>> {
            static TEXT: LazyLock<String> = LazyLock::new(|| $dialect.text(statements::GIVEN_UP));
            let rows = sqlx::query(TEXT.as_str())
                .bind(after)
                .bind(limit)
                .fetch_all(connection)
                .await?;
            let given_up = |row| {
                Ok(GivenUp {
                    record: record(row)?,
                    error: row.try_get_unchecked(6)?,
                    written_at: row.try_get_unchecked(7)?,
                    parked_at: row.try_get_unchecked(8)?,
                })
            };
            rows.iter().map(given_up).collect()
        }

        async fn tracked_replay(connection: &mut Self::Connection) -> Done<u64> {
            static TEXT: LazyLock<String> = LazyLock::new(|| $dialect.text(statements::TRACKED_REPLAY));
            let replayed = sqlx::query(TEXT.as_str()).execute(connection).await?;
            Ok(replayed.rows_affected())
        }

        async fn tracked_counts(connection: &mut Self::Connection) -> Done<(i64, i64)> {
            let row = sqlx::query(statements::TRACKED_COUNTS)
                .fetch_one(connection)
                .await?;
            Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?))
        }

        async fn insert(connection: &mut Self::Connection, rows: &[NewRecord], notify: bool) -> Done<()> {
            let mut left = rows;
            while !left.is_empty() {
                let (now, later) = left.split_at(statements::insert_size(left.len()));
                left = later;
                let delays: Vec<i64> = now.iter().map(|row| row.delay).collect();
                let text = $dialect.insert(&delays, notify);
                let usual = delays.iter().all(|delay| *delay == 0);
                let mut query = sqlx::query(AssertSqlSafe(text)).persistent(usual);
                for row in now {
                    query = query
                        .bind(&*row.destination)
                        .bind(row.key.as_deref())
                        .bind(row.headers.as_slice())
                        .bind(row.payload.as_slice());
                }
                query.execute(&mut *connection).await?;
            }
            Ok(())
        }
    };
}

/// Records tracked messages by lists of values.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
macro_rules! tracks_by_values {
    ($dialect:expr) => {
        async fn track(connection: &mut Self::Connection, rows: &[NewTracked]) -> Done<()> {
            let mut left = rows;
            while !left.is_empty() {
                let (now, later) = left.split_at(statements::insert_size(left.len()));
                left = later;
                let mut query = sqlx::query(AssertSqlSafe($dialect.track(now.len())));
                for row in now {
                    query = query
                        .bind(row.id.as_str())
                        .bind(row.destination.as_str())
                        .bind(row.key.as_deref())
                        .bind(row.headers.as_slice())
                        .bind(row.payload.as_slice())
                        .bind(row.resend);
                }
                query.execute(&mut *connection).await?;
            }
            Ok(())
        }
    };
}

/// Marks what has ended, inside a transaction.
macro_rules! mark {
    ($dialect:expr, $connection:expr, $finished:expr, $execute_ids:path) => {{
        static RETRY: LazyLock<String> = LazyLock::new(|| $dialect.text(statements::RETRY));
        static PARK: LazyLock<String> = LazyLock::new(|| $dialect.text(statements::PARK));
        let finished: &Finished = $finished;
        let gone = if finished.keep {
            "UPDATE ruststream_outbox SET state = 2, held_until = NULL, token = 0, ended_at = {now}"
        } else {
            "DELETE FROM ruststream_outbox"
        };
        if !finished.published.is_empty() {
            $execute_ids(&mut *$connection, gone, &finished.published, finished.token).await?;
        }
        if !finished.released.is_empty() {
            let free = "UPDATE ruststream_outbox SET held_until = NULL, token = 0";
            $execute_ids(&mut *$connection, free, &finished.released, finished.token).await?;
        }
        for failed in &finished.failed {
            let attempts = i64::from(failed.attempts);
            let query = match failed.again {
                Some(again) => sqlx::query(RETRY.as_str()).bind(attempts).bind(again),
                None => sqlx::query(PARK.as_str()).bind(attempts),
            };
            query
                .bind(failed.error.as_str())
                .bind(failed.id)
                .bind(finished.token)
                .execute(&mut *$connection)
                .await?;
        }
    }};
}

/// Reads a record from the columns of `statements::RECORD`.
macro_rules! reads_records {
    ($row:ty) => {
        fn record(row: &$row) -> Done<Record> {
            let attempts: i64 = row.try_get_unchecked(1)?;
            Ok(Record {
                id: row.try_get_unchecked(0)?,
                attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                destination: row.try_get_unchecked(2)?,
                key: row.try_get_unchecked(3)?,
                headers: row.try_get_unchecked(4)?,
                payload: row.try_get_unchecked(5)?,
            })
        }

        fn leftover(row: &$row) -> Done<TrackedLeftover> {
            let attempts: i64 = row.try_get_unchecked(1)?;
            Ok(TrackedLeftover {
                id: row.try_get_unchecked(0)?,
                attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                destination: row.try_get_unchecked(2)?,
                key: row.try_get_unchecked(3)?,
                headers: row.try_get_unchecked(4)?,
                payload: row.try_get_unchecked(5)?,
            })
        }
    };
}

#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) use tracks_by_values;
pub(super) use {mark, reads_records, same_for_all};

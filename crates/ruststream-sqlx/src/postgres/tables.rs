//! Tables of the user's own, by the connections of this server.

use std::any::Any;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{AssertSqlSafe, Either, Executor, Row};

use super::dialect::{Link, PostgresDialect};
use crate::server::Answers;
use crate::table::{Flavour, Speaks, TableAnswer, TableWork, work};

impl Answers<TableWork> for PostgresDialect {
    async fn answer(&self, link: &mut Link, asked: &TableWork) -> Result<TableAnswer, sqlx::Error> {
        work(link, asked).await
    }
}

impl Speaks for Link {
    type Row = PgRow;

    const FLAVOUR: Flavour = Flavour::Postgres;

    async fn run(&mut self, texts: String) -> Result<(Vec<PgRow>, u64), sqlx::Error> {
        let mut rows = Vec::new();
        let mut changed = 0;
        let mut answers = self.connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(texts)));
        while let Some(answer) = answers.try_next().await? {
            match answer {
                Either::Left(done) => changed += done.rows_affected(),
                Either::Right(row) => rows.push(row),
            }
        }
        Ok((rows, changed))
    }

    async fn insert(&mut self, text: &str, arguments: &(dyn Any + Send + Sync)) -> Result<u64, sqlx::Error> {
        let arguments = arguments.downcast_ref::<PgArguments>().cloned().unwrap_or_default();
        let insert = sqlx::query_with(AssertSqlSafe(text.to_owned()), arguments);
        Ok(self.connection.execute(insert).await?.rows_affected())
    }

    fn number(row: &PgRow, column: usize) -> Result<Option<i64>, sqlx::Error> {
        row.try_get_unchecked(column)
    }

    fn text(row: &PgRow, column: usize) -> Result<String, sqlx::Error> {
        row.try_get_unchecked(column)
    }

    fn bytes(row: &PgRow, column: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
        row.try_get_unchecked(column)
    }
}

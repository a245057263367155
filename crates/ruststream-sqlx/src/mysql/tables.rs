//! Tables of the user's own, by the connections of this server.

use std::any::Any;

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{AssertSqlSafe, Executor, Row};

use super::dialect::{Link, MySqlDialect};
use crate::server::Answers;
use crate::table::{Flavour, Speaks, TableAnswer, TableWork, work};

impl Answers<TableWork> for MySqlDialect {
    async fn answer(&self, link: &mut Link, asked: &TableWork) -> Result<TableAnswer, sqlx::Error> {
        work(link, asked).await
    }
}

impl Speaks for Link {
    type Row = MySqlRow;

    const FLAVOUR: Flavour = Flavour::MySql;

    async fn run(&mut self, texts: String) -> Result<(Vec<MySqlRow>, u64), sqlx::Error> {
        Link::run(self, texts).await
    }

    async fn insert(&mut self, text: &str, arguments: &(dyn Any + Send + Sync)) -> Result<u64, sqlx::Error> {
        let arguments = arguments.downcast_ref::<MySqlArguments>().cloned().unwrap_or_default();
        let insert = sqlx::query_with(AssertSqlSafe(text.to_owned()), arguments);
        Ok(self.connection.execute(insert).await?.rows_affected())
    }

    fn number(row: &MySqlRow, column: usize) -> Result<Option<i64>, sqlx::Error> {
        row.try_get_unchecked(column)
    }

    fn text(row: &MySqlRow, column: usize) -> Result<String, sqlx::Error> {
        let bytes: Vec<u8> = row.try_get_unchecked(column)?;
        String::from_utf8(bytes).map_err(|error| sqlx::Error::Decode(error.into()))
    }

    fn bytes(row: &MySqlRow, column: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
        row.try_get_unchecked(column)
    }
}

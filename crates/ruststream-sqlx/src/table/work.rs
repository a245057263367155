//! What is asked of a table, and how a connection does it, whichever the database.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::layout::{Flavour, Found, Layout};
use super::spec::TableSpec;
use super::statements::Scope;
use crate::error::Failure;
use crate::operation::NewRow;

/// One thing to do on a table.
pub(crate) enum TableWork {
    /// Find its columns.
    Open(TableSpec),
    /// Lease what is due.
    Claim {
        layout: Arc<Layout>,
        scope: Scope,
        room: usize,
        lease: i64,
        token: i64,
    },
    Settle(Arc<Layout>, Vec<TablePart>),
    /// Extend leases, by milliseconds.
    Renew(Arc<Layout>, Vec<Held>, i64),
    /// Store messages that have no struct, each in its group.
    Store(Arc<Layout>, Vec<(String, NewRow)>),
    /// Insert rows that have one; the arguments are of the database's own type.
    Insert {
        text: String,
        arguments: Box<dyn Any + Send + Sync>,
    },
    Prune {
        layout: Arc<Layout>,
        scope: Scope,
        keep: Option<i64>,
        keep_dead: Option<i64>,
        limit: i64,
    },
}

/// Rows that are held under one token.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) ids: Vec<String>,
    pub(crate) token: i64,
}

/// Rows that end the same way.
#[derive(Debug)]
pub(crate) struct TablePart {
    pub(crate) held: Held,
    pub(crate) end: End,
}

#[derive(Debug)]
pub(crate) enum End {
    Ack,
    Release,
    Return(u32),
    /// In milliseconds.
    Retry(i64),
    Dead(String),
}

/// What came of it.
pub(crate) enum TableAnswer {
    Opened(Box<Layout>),
    Claimed(Vec<TableRow>),
    /// Nothing to claim; in how many milliseconds there may be.
    Nothing(Option<i64>),
    Changed(u64),
    /// Ids with their tokens.
    Lost(Vec<(String, i64)>),
    /// The unique key of a row was there.
    Duplicate,
    /// The table is not as it should be.
    Failed(Failure),
}

impl fmt::Debug for TableWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableWork")
    }
}

impl fmt::Debug for TableAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableAnswer")
    }
}

/// A row that was claimed.
pub(crate) struct TableRow {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    /// Milliseconds since 1970.
    pub(crate) due: i64,
    pub(crate) payload: Vec<u8>,
    pub(crate) headers: Option<Vec<u8>>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) priority: i64,
    /// As the driver has it.
    pub(crate) raw: Box<dyn Any + Send + Sync>,
}

/// A connection that tables are worked on by.
pub(crate) trait Speaks: Send {
    type Row: Send + Sync + 'static;

    const FLAVOUR: Flavour;

    /// Runs texts, and answers their rows and how many rows they changed.
    fn run(&mut self, texts: String) -> impl Future<Output = Result<(Vec<Self::Row>, u64), sqlx::Error>> + Send;

    /// Runs a text with arguments of its own type.
    fn insert(
        &mut self,
        text: &str,
        arguments: &(dyn Any + Send + Sync),
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// The number in a column.
    fn number(row: &Self::Row, column: usize) -> Result<Option<i64>, sqlx::Error>;

    /// The text in a column.
    fn text(row: &Self::Row, column: usize) -> Result<String, sqlx::Error>;

    /// The bytes in a column.
    fn bytes(row: &Self::Row, column: usize) -> Result<Option<Vec<u8>>, sqlx::Error>;
}

/// Does it.
pub(crate) async fn work<S: Speaks>(session: &mut S, work: &TableWork) -> Result<TableAnswer, sqlx::Error> {
    match work {
        TableWork::Open(spec) => open(session, spec).await,
        TableWork::Claim {
            layout,
            scope,
            room,
            lease,
            token,
        } => claim(session, layout, scope, *room, *lease, *token).await,
        TableWork::Settle(layout, parts) => {
            let texts = parts.iter().filter_map(|part| settlement(layout, part)).collect();
            Ok(TableAnswer::Changed(together(session, texts).await?))
        }
        TableWork::Renew(layout, held, lease) => {
            let mut lost = Vec::new();
            for rows in held {
                let ids: Vec<&str> = rows.ids.iter().map(String::as_str).collect();
                let condition = layout.held(&ids, rows.token);
                let (_, renewed) = session.run(layout.renew(&condition, *lease)).await?;
                if renewed as usize >= ids.len() {
                    continue;
                }
                let (found, _) = session.run(layout.still_held(&condition)).await?;
                let found: Vec<String> = found.iter().map(|row| S::text(row, 0)).collect::<Result<_, _>>()?;
                let gone = rows.ids.iter().filter(|id| !found.contains(id));
                lost.extend(gone.map(|id| (id.clone(), rows.token)));
            }
            Ok(TableAnswer::Lost(lost))
        }
        TableWork::Store(layout, rows) => {
            let texts = rows.iter().map(|(group, row)| layout.store(group, row)).collect();
            Ok(TableAnswer::Changed(together(session, texts).await?))
        }
        TableWork::Insert { text, arguments } => match session.insert(text, &**arguments).await {
            Ok(stored) => Ok(TableAnswer::Changed(stored)),
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(TableAnswer::Duplicate),
            Err(error) => Err(error),
        },
        TableWork::Prune {
            layout,
            scope,
            keep,
            keep_dead,
            limit,
        } => {
            let mut pruned = 0;
            for (dead, keep) in [(false, keep), (true, keep_dead)] {
                if let Some(text) = keep.and_then(|keep| layout.prune(scope, dead, keep, *limit)) {
                    pruned = session.run(text).await?.1.max(pruned);
                }
            }
            Ok(TableAnswer::Changed(pruned))
        }
    }
}

async fn open<S: Speaks>(session: &mut S, spec: &TableSpec) -> Result<TableAnswer, sqlx::Error> {
    let flavour = S::FLAVOUR;
    let (rows, _) = session.run(describe(flavour, spec)).await?;
    let found = |row: &S::Row| -> Result<Found, sqlx::Error> {
        Ok(Found {
            name: S::text(row, 0)?,
            kind: S::text(row, 1)?.to_lowercase(),
            nullable: S::number(row, 2)? == Some(1),
        })
    };
    let found: Vec<Found> = rows.iter().map(found).collect::<Result<_, sqlx::Error>>()?;
    let layout = match Layout::find(flavour, spec, &found) {
        Ok(layout) => layout,
        Err(failure) => return Ok(TableAnswer::Failed(failure)),
    };
    let first = layout.group.as_ref().unwrap_or(&layout.run_at);
    let (leading, _) = session.run(leading_columns(flavour, spec)).await?;
    let leading: Vec<String> = leading.iter().map(|row| S::text(row, 0)).collect::<Result<_, _>>()?;
    if !leading.iter().any(|name| flavour.quote(name) == first.name) {
        let columns: Vec<&str> = layout.group.iter().map(|group| group.name.as_str()).collect();
        let columns = [&columns[..], &[&layout.run_at.name]].concat().join(", ");
        tracing::warn!(
            table = layout.table,
            "claims walk through the whole table for want of an index: CREATE INDEX ON {} ({columns})",
            layout.table
        );
    }
    Ok(TableAnswer::Opened(Box::new(layout)))
}

async fn claim<S: Speaks>(
    session: &mut S,
    layout: &Layout,
    scope: &Scope,
    room: usize,
    lease: i64,
    token: i64,
) -> Result<TableAnswer, sqlx::Error> {
    let rows = match S::FLAVOUR {
        Flavour::Postgres => session.run(layout.claim(scope, room, lease, token)).await?.0,
        Flavour::MySql | Flavour::Sqlite => {
            let claimed = claim_in_steps(session, layout, scope, room, lease, token).await;
            if claimed.is_err() {
                // Where a transaction was begun, it is still open.
                let _ = session.run("ROLLBACK".to_owned()).await;
            }
            claimed?
        }
    };
    if rows.is_empty() {
        let (due, _) = session.run(layout.next_due(scope)).await?;
        let due = due.first().map(|row| S::number(row, 0)).transpose()?;
        return Ok(TableAnswer::Nothing(due.map(Option::unwrap_or_default)));
    }
    let claimed = |row: S::Row| -> Result<TableRow, sqlx::Error> {
        Ok(TableRow {
            id: S::text(&row, 0)?,
            attempt: S::number(&row, 1)?
                .and_then(|attempt| u32::try_from(attempt).ok())
                .unwrap_or(1),
            due: S::number(&row, 2)?.unwrap_or(0),
            payload: S::bytes(&row, 3)?.unwrap_or_default(),
            headers: S::bytes(&row, 4)?,
            key: S::bytes(&row, 5)?,
            priority: S::number(&row, 6)?.unwrap_or(0),
            raw: Box::new(row),
        })
    };
    Ok(TableAnswer::Claimed(
        rows.into_iter().map(claimed).collect::<Result<_, _>>()?,
    ))
}

/// A claim where the database cannot answer what it updates.
async fn claim_in_steps<S: Speaks>(
    session: &mut S,
    layout: &Layout,
    scope: &Scope,
    room: usize,
    lease: i64,
    token: i64,
) -> Result<Vec<S::Row>, sqlx::Error> {
    let begin = if S::FLAVOUR == Flavour::Sqlite {
        "BEGIN IMMEDIATE"
    } else {
        "START TRANSACTION"
    };
    let find = format!("{begin}; {}", layout.find_due(scope, room));
    let (found, _) = session.run(find).await?;
    let found: Vec<String> = found.iter().map(|row| S::text(row, 0)).collect::<Result<_, _>>()?;
    let ids: Vec<&str> = found.iter().map(String::as_str).collect();
    if ids.is_empty() {
        session.run("ROLLBACK".to_owned()).await?;
        return Ok(Vec::new());
    }
    let lease = layout.lease(&ids, lease, token);
    let read = layout.read(&ids);
    Ok(session.run(format!("{lease}; {read}; COMMIT")).await?.0)
}

fn settlement(layout: &Layout, part: &TablePart) -> Option<String> {
    let ids: Vec<&str> = part.held.ids.iter().map(String::as_str).collect();
    let held = layout.held(&ids, part.held.token);
    match &part.end {
        End::Ack => Some(layout.ack(&held)),
        End::Release => Some(layout.release(&held)),
        End::Return(attempts) => Some(layout.give_back(&held, *attempts)),
        End::Retry(after) => Some(layout.retry(&held, *after)),
        End::Dead(reason) => layout.bury(&held, reason),
    }
}

/// Runs texts in one transaction; answers how many rows they changed.
async fn together<S: Speaks>(session: &mut S, texts: Vec<String>) -> Result<u64, sqlx::Error> {
    let one = texts.len() == 1;
    let texts = texts.join("; ");
    let text = match S::FLAVOUR {
        _ if one => texts,
        // One text is one transaction there.
        Flavour::Postgres => texts,
        Flavour::MySql => format!("START TRANSACTION; {texts}; COMMIT"),
        Flavour::Sqlite => format!("BEGIN IMMEDIATE; {texts}; COMMIT"),
    };
    let done = session.run(text).await;
    if done.is_err() && !one && S::FLAVOUR == Flavour::Sqlite {
        let _ = session.run("ROLLBACK".to_owned()).await;
    }
    Ok(done?.1)
}

/// Reads the columns of a table: name, type, whether it can be null.
fn describe(flavour: Flavour, spec: &TableSpec) -> String {
    let table = flavour.table(spec);
    match flavour {
        Flavour::Postgres => format!(
            "SELECT attname::text, format_type(atttypid, NULL), (NOT attnotnull)::int FROM pg_catalog.pg_attribute \
             WHERE attrelid = to_regclass({}) AND attnum > 0 AND NOT attisdropped",
            quoted(&table)
        ),
        Flavour::MySql => format!(
            "SELECT CAST(column_name AS CHAR), CAST(column_type AS CHAR), is_nullable = 'YES' FROM information_schema.columns \
             WHERE table_schema = {} AND table_name = {}",
            spec.schema.map_or_else(|| "DATABASE()".to_owned(), quoted),
            quoted(spec.table)
        ),
        // The key of a table is never null, whatever is written.
        Flavour::Sqlite => format!(
            "SELECT name, type, \"notnull\" = 0 AND pk = 0 FROM pragma_table_xinfo({}, {})",
            quoted(spec.table),
            quoted(spec.schema.unwrap_or("main"))
        ),
    }
}

/// Reads with which columns the indexes of a table begin.
fn leading_columns(flavour: Flavour, spec: &TableSpec) -> String {
    match flavour {
        Flavour::Postgres => format!(
            "SELECT a.attname::text FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_attribute AS a \
             ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indrelid = to_regclass({})",
            quoted(&flavour.table(spec))
        ),
        Flavour::MySql => format!(
            "SELECT CAST(column_name AS CHAR) FROM information_schema.statistics \
             WHERE table_schema = {} AND table_name = {} AND seq_in_index = 1",
            spec.schema.map_or_else(|| "DATABASE()".to_owned(), quoted),
            quoted(spec.table)
        ),
        Flavour::Sqlite => format!(
            "SELECT i.name FROM pragma_index_list({}, {schema}) AS l, pragma_index_info(l.name, {schema}) AS i WHERE i.seqno = 0",
            quoted(spec.table),
            schema = quoted(spec.schema.unwrap_or("main"))
        ),
    }
}

/// A name of the source code as a text.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

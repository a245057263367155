//! The columns of a table as they were found, and the ways that databases write things.

use std::fmt::Write as _;

use ruststream::transport::ErrorKind;

use super::spec::{Role, TableSpec};
use crate::error::Failure;

/// How a database writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each database is a feature")]
pub(crate) enum Flavour {
    Postgres,
    MySql,
    Sqlite,
}

/// A column as the database describes it.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// In lower case.
    pub(crate) kind: String,
    pub(crate) nullable: bool,
}

/// A column that has a role.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// With its quotes.
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) nullable: bool,
}

/// A table with what its columns are for.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) flavour: Flavour,
    /// With quotes and schema.
    pub(crate) table: String,
    pub(crate) id: Column,
    pub(crate) attempt: Column,
    pub(crate) run_at: Column,
    pub(crate) lease: Column,
    pub(crate) token: Column,
    pub(crate) group: Option<Column>,
    pub(crate) payload: Option<Column>,
    pub(crate) headers: Option<Column>,
    pub(crate) key: Option<Column>,
    pub(crate) priority: Option<Column>,
    pub(crate) processed_at: Option<Column>,
    pub(crate) dead_at: Option<Column>,
    pub(crate) dead_reason: Option<Column>,
}

impl Flavour {
    pub(crate) fn quote(self, name: &str) -> String {
        match self {
            Self::MySql => format!("`{}`", name.replace('`', "``")),
            Self::Postgres | Self::Sqlite => format!("\"{}\"", name.replace('"', "\"\"")),
        }
    }

    pub(crate) fn table(self, spec: &TableSpec) -> String {
        let table = self.quote(spec.table);
        match spec.schema {
            Some(schema) => format!("{}.{table}", self.quote(schema)),
            None => table,
        }
    }

    pub(crate) const fn now(self) -> &'static str {
        match self {
            Self::Postgres => "now()",
            Self::MySql => "UTC_TIMESTAMP(6)",
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        }
    }

    /// So many milliseconds from now.
    pub(crate) fn later(self, millis: i64) -> String {
        /// A hundred years: some servers' time ends in 9999.
        const LONGEST: i64 = 100 * 365 * 86_400_000;
        let millis = millis.clamp(-LONGEST, LONGEST);
        match self {
            Self::Postgres => format!("now() + {millis} * interval '1 millisecond'"),
            Self::MySql => format!("UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND", millis * 1_000),
            Self::Sqlite => format!("{} + {millis}", self.now()),
        }
    }

    /// Milliseconds since 1970 as a time.
    pub(crate) fn time(self, millis: i64) -> String {
        match self {
            Self::Postgres => format!("timestamptz 'epoch' + {millis} * interval '1 millisecond'"),
            Self::MySql => format!("'1970-01-01' + INTERVAL {} MICROSECOND", millis.saturating_mul(1_000)),
            Self::Sqlite => millis.to_string(),
        }
    }

    /// A time as milliseconds since 1970.
    pub(crate) fn millis(self, column: &str) -> String {
        match self {
            Self::Postgres => format!("(extract(epoch FROM {column}) * 1000)::bigint"),
            Self::MySql => format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {column}) DIV 1000"),
            Self::Sqlite => column.to_owned(),
        }
    }

    /// Bytes as they stand in a text, for a column of this type.
    pub(crate) fn bytes(self, bytes: &[u8], kind: &str) -> String {
        let mut hex = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            let _ = write!(hex, "{byte:02x}");
        }
        match self {
            Self::Postgres if kind == "bytea" => format!("decode('{hex}', 'hex')"),
            Self::Postgres => format!("convert_from(decode('{hex}', 'hex'), 'UTF8')::{kind}"),
            Self::MySql if is_binary(kind) => format!("x'{hex}'"),
            Self::MySql => format!("CONVERT(x'{hex}' USING utf8mb4)"),
            Self::Sqlite if kind.contains("blob") || kind.is_empty() => format!("x'{hex}'"),
            Self::Sqlite => format!("CAST(x'{hex}' AS TEXT)"),
        }
    }

    /// A column as bytes.
    fn as_bytes(self, column: &Column) -> String {
        let name = &column.name;
        match self {
            Self::Postgres if column.kind == "bytea" => format!("m.{name}"),
            Self::Postgres => format!("convert_to(m.{name}::text, 'UTF8')"),
            Self::MySql => format!("CAST(m.{name} AS BINARY)"),
            Self::Sqlite => format!("CAST(m.{name} AS BLOB)"),
        }
    }
}

fn is_binary(kind: &str) -> bool {
    kind.contains("binary") || kind.contains("blob")
}

fn is_number(kind: &str) -> bool {
    kind.contains("int")
}

impl Layout {
    /// Finds the columns of a table; an error names the first that is missing or of a type that will not do.
    pub(crate) fn find(flavour: Flavour, spec: &TableSpec, found: &[Found]) -> Result<Self, Failure> {
        let table = flavour.table(spec);
        if found.is_empty() {
            return Err(wrong(format!(
                "there is no table {table}: create it, or name another with `#[inbox(table = ..)]`"
            )));
        }
        // Of all columns first: a handler that takes the row needs them too.
        for column in spec.columns {
            if !found.iter().any(|there| there.name == column.name) {
                return Err(wrong(format!(
                    "the table {table} has no column {:?}: add it, or say `#[inbox(column = ..)]` where it has another name",
                    column.name
                )));
            }
        }
        let role = |role: Role| -> Result<Option<Column>, Failure> {
            let Some(column) = spec.columns.iter().find(|column| column.role == role) else {
                return Ok(None);
            };
            let Some(there) = found.iter().find(|there| there.name == column.name) else {
                return Ok(None);
            };
            if let Some(wanted) = wanted(flavour, role, &there.kind) {
                return Err(wrong(format!(
                    "the column {:?} of the table {table} is of the type {}, and as {role:?} it has to be {wanted}",
                    column.name, there.kind
                )));
            }
            Ok(Some(Column {
                name: flavour.quote(&there.name),
                kind: there.kind.clone(),
                nullable: there.nullable,
            }))
        };
        let needed = |which: Role| {
            role(which)?.ok_or_else(|| wrong(format!("the table {table} has no column with the role {which:?}")))
        };
        Ok(Self {
            flavour,
            id: needed(Role::Id)?,
            attempt: needed(Role::Attempt)?,
            run_at: needed(Role::RunAt)?,
            lease: needed(Role::Lease)?,
            token: needed(Role::Token)?,
            group: role(Role::Group)?,
            payload: role(Role::Payload)?,
            headers: role(Role::Headers)?,
            key: role(Role::Key)?,
            priority: role(Role::Priority)?,
            processed_at: role(Role::ProcessedAt)?,
            dead_at: role(Role::DeadAt)?,
            dead_reason: role(Role::DeadReason)?,
            table,
        })
    }

    /// An id as it is told of in this crate.
    pub(crate) fn id_text(&self, name: &str) -> String {
        match self.flavour {
            Flavour::Postgres => format!("{name}::text"),
            Flavour::MySql if is_binary(&self.id.kind) => format!("LOWER(HEX({name}))"),
            Flavour::MySql => format!("CAST({name} AS CHAR)"),
            Flavour::Sqlite if self.id.kind.contains("blob") => format!("lower(hex({name}))"),
            Flavour::Sqlite => format!("CAST({name} AS TEXT)"),
        }
    }

    /// Ids as they stand in a list.
    pub(crate) fn ids<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> String {
        let kind = &self.id.kind;
        let binary = is_binary(kind) && self.flavour != Flavour::Postgres;
        let one = |id: &str| {
            if is_number(kind) {
                // A number that came from the database.
                id.parse::<i64>().unwrap_or(0).to_string()
            } else if binary {
                let hex: String = id.chars().filter(char::is_ascii_hexdigit).collect();
                format!("x'{hex}'")
            } else {
                self.flavour.bytes(id.as_bytes(), kind)
            }
        };
        let all: Vec<String> = ids.into_iter().map(one).collect();
        all.join(",")
    }

    /// What a claim reads of each row, before the row itself: id, attempt, due, payload, headers, key, priority.
    pub(crate) fn columns(&self) -> String {
        let bytes = |column: &Option<Column>| match column {
            Some(column) => self.flavour.as_bytes(column),
            None => "NULL".to_owned(),
        };
        format!(
            "{} AS rs_id, m.{} AS rs_attempt, {} AS rs_due, {} AS rs_payload, {} AS rs_headers, {} AS rs_key, {} AS rs_rank, m.*",
            self.id_text(&format!("m.{}", self.id.name)),
            self.attempt.name,
            self.flavour.millis(&format!("m.{}", self.run_at.name)),
            bytes(&self.payload),
            bytes(&self.headers),
            bytes(&self.key),
            self.priority
                .as_ref()
                .map_or_else(|| "0".to_owned(), |column| format!("m.{}", column.name)),
        )
    }

    /// What a row that no one has is set to.
    pub(crate) fn free(&self) -> String {
        let lease = if self.lease.nullable {
            "NULL".to_owned()
        } else {
            self.flavour.time(0)
        };
        let token = if self.token.nullable { "NULL" } else { "0" };
        format!("{} = {lease}, {} = {token}", self.lease.name, self.token.name)
    }
}

fn wrong(text: String) -> Failure {
    Failure::new(ErrorKind::Incompatible, text)
}

/// What the type of a column would have to be, where it will not do.
fn wanted(flavour: Flavour, role: Role, kind: &str) -> Option<&'static str> {
    let (fits, wanted) = match (role, flavour) {
        (Role::RunAt | Role::Lease | Role::ProcessedAt | Role::DeadAt, Flavour::Postgres) => {
            (kind == "timestamp with time zone", "timestamptz")
        }
        (Role::RunAt | Role::Lease | Role::ProcessedAt | Role::DeadAt, Flavour::MySql) => {
            (kind.starts_with("datetime"), "DATETIME(6), in UTC")
        }
        (Role::RunAt | Role::Lease | Role::ProcessedAt | Role::DeadAt, Flavour::Sqlite) => {
            (is_number(kind), "INTEGER, milliseconds since 1970")
        }
        (Role::Token, Flavour::Sqlite) => (is_number(kind), "INTEGER"),
        (Role::Token, _) => (kind.starts_with("bigint"), "bigint"),
        (Role::Attempt | Role::Priority, _) => (is_number(kind), "an integer"),
        (Role::Id, Flavour::Postgres) => {
            let fits = ["integer", "bigint", "uuid", "text"].contains(&kind) || kind.starts_with("character");
            (fits, "integer, bigint, uuid or text")
        }
        (Role::Headers, Flavour::Postgres) => (kind == "bytea", "bytea"),
        (Role::Headers, Flavour::MySql) => (is_binary(kind), "a BLOB"),
        _ => (true, ""),
    };
    (!fits).then_some(wanted)
}

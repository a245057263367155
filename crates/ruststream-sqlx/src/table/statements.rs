//! The statements on a table of the user's own. Ids and numbers stand in their texts, which are never the same twice.

use super::layout::{Flavour, Layout};
use super::spec::TableSpec;
use crate::operation::Choice;

/// The longest reason that a dead row keeps.
const REASON_BYTES: usize = 16 * 1024;

/// Which rows of a table a subscription reads.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) group: Option<String>,
    pub(crate) choice: Choice,
}

impl Layout {
    /// The condition of what may be handed out some time.
    fn waits(&self, row: &str, scope: &Scope) -> String {
        let mut text = "TRUE".to_owned();
        if let (Some(column), Some(group)) = (&self.group, &scope.group) {
            let value = self.flavour.bytes(group.as_bytes(), &column.kind);
            text = format!("{row}.{} = {value}", column.name);
        }
        for column in [&self.processed_at, &self.dead_at].into_iter().flatten() {
            text = format!("{text} AND {row}.{} IS NULL", column.name);
        }
        text
    }

    fn is_past(&self, row: &str, column: &super::layout::Column) -> String {
        let (name, now) = (&column.name, self.flavour.now());
        if column.nullable {
            format!("({row}.{name} IS NULL OR {row}.{name} <= {now})")
        } else {
            format!("{row}.{name} <= {now}")
        }
    }

    /// Finds what is due and no one has, in order.
    fn due(&self, scope: &Scope, room: usize) -> String {
        let mut condition = format!(
            "{} AND {} AND {}",
            self.waits("m", scope),
            self.is_past("m", &self.run_at),
            self.is_past("m", &self.lease)
        );
        if let (true, Some(key)) = (scope.choice.fifo, &self.key) {
            let (id, key) = (&self.id.name, &key.name);
            condition = format!(
                "{condition} AND (m.{key} IS NULL OR NOT EXISTS (SELECT 1 FROM {} AS e WHERE {} AND e.{key} = m.{key} \
                 AND e.{id} <> m.{id} AND (NOT {} OR (e.{id} < m.{id} AND (e.{} > 0 OR {})))))",
                self.table,
                self.waits("e", scope),
                self.is_past("e", &self.lease),
                self.attempt.name,
                self.is_past("e", &self.run_at),
            );
        }
        let priority = match (&self.priority, scope.choice.priority) {
            (Some(column), true) => format!("m.{} DESC, ", column.name),
            _ => String::new(),
        };
        let lock = match self.flavour {
            Flavour::Postgres => " FOR UPDATE OF m SKIP LOCKED",
            Flavour::MySql => " FOR UPDATE SKIP LOCKED",
            Flavour::Sqlite => "",
        };
        format!(
            "FROM {} AS m WHERE {condition} ORDER BY {priority}m.{}, m.{} LIMIT {room}{lock}",
            self.table, self.run_at.name, self.id.name
        )
    }

    fn hold(&self, lease: i64, token: i64) -> String {
        format!(
            "{} = {}, {} = {token}, {attempt} = {attempt} + 1",
            self.lease.name,
            self.flavour.later(lease),
            self.token.name,
            attempt = self.attempt.name
        )
    }

    /// Leases what is due, and answers it; where the database can do both at once.
    pub(crate) fn claim(&self, scope: &Scope, room: usize, lease: i64, token: i64) -> String {
        let id = &self.id.name;
        format!(
            "UPDATE {} AS m SET {} WHERE m.{id} IN (SELECT m.{id} {}) RETURNING {}",
            self.table,
            self.hold(lease, token),
            self.due(scope, room),
            self.columns()
        )
    }

    /// The same in three steps, within a transaction: the ids.
    pub(crate) fn find_due(&self, scope: &Scope, room: usize) -> String {
        let id = self.id_text(&format!("m.{}", self.id.name));
        format!("SELECT {id} {}", self.due(scope, room))
    }

    /// Their lease.
    pub(crate) fn lease(&self, ids: &[&str], lease: i64, token: i64) -> String {
        let ids = self.ids(ids.iter().copied());
        format!(
            "UPDATE {} SET {} WHERE {} IN ({ids})",
            self.table,
            self.hold(lease, token),
            self.id.name
        )
    }

    /// The rows.
    pub(crate) fn read(&self, ids: &[&str]) -> String {
        let ids = self.ids(ids.iter().copied());
        format!(
            "SELECT {} FROM {} AS m WHERE m.{} IN ({ids})",
            self.columns(),
            self.table,
            self.id.name
        )
    }

    /// In how many milliseconds the first row is due.
    pub(crate) fn next_due(&self, scope: &Scope) -> String {
        let run_at = &self.run_at.name;
        let until = |time: &str| {
            format!(
                "{} - {}",
                self.flavour.millis(time),
                self.flavour.millis(self.flavour.now())
            )
        };
        format!(
            "SELECT {} FROM {} AS m WHERE {} AND {} ORDER BY m.{run_at} LIMIT 1",
            until(&format!("m.{run_at}")),
            self.table,
            self.waits("m", scope),
            self.is_past("m", &self.lease),
        )
    }

    /// Rows that are held under a token.
    pub(crate) fn held(&self, ids: &[&str], token: i64) -> String {
        let ids = self.ids(ids.iter().copied());
        format!("{} IN ({ids}) AND {} = {token}", self.id.name, self.token.name)
    }

    pub(crate) fn ack(&self, held: &str) -> String {
        match &self.processed_at {
            None => format!("DELETE FROM {} WHERE {held}", self.table),
            Some(column) => format!(
                "UPDATE {} SET {} = {}, {} WHERE {held}",
                self.table,
                column.name,
                self.flavour.now(),
                self.free()
            ),
        }
    }

    pub(crate) fn release(&self, held: &str) -> String {
        let attempt = &self.attempt.name;
        format!(
            "UPDATE {} SET {attempt} = {attempt} - 1, {} WHERE {held}",
            self.table,
            self.free()
        )
    }

    pub(crate) fn give_back(&self, held: &str, attempts: u32) -> String {
        format!(
            "UPDATE {} SET {} = {attempts}, {} WHERE {held}",
            self.table,
            self.attempt.name,
            self.free()
        )
    }

    pub(crate) fn retry(&self, held: &str, after: i64) -> String {
        let later = self.flavour.later(after);
        format!(
            "UPDATE {} SET {} = {later}, {} WHERE {held}",
            self.table,
            self.run_at.name,
            self.free()
        )
    }

    pub(crate) fn bury(&self, held: &str, reason: &str) -> Option<String> {
        let dead_at = &self.dead_at.as_ref()?.name;
        let reason = &reason[..reason.floor_char_boundary(REASON_BYTES)].replace('\0', "\u{fffd}");
        let reason = match &self.dead_reason {
            Some(column) => format!(
                "{} = {}, ",
                column.name,
                self.flavour.bytes(reason.as_bytes(), &column.kind)
            ),
            None => String::new(),
        };
        let now = self.flavour.now();
        Some(format!(
            "UPDATE {} SET {dead_at} = {now}, {reason}{} WHERE {held}",
            self.table,
            self.free()
        ))
    }

    pub(crate) fn renew(&self, held: &str, lease: i64) -> String {
        let later = self.flavour.later(lease);
        format!("UPDATE {} SET {} = {later} WHERE {held}", self.table, self.lease.name)
    }

    /// Those of some rows that are held.
    pub(crate) fn still_held(&self, held: &str) -> String {
        format!(
            "SELECT {} FROM {} WHERE {held}",
            self.id_text(&self.id.name),
            self.table
        )
    }

    /// Deletes what is done, or dead, for so long.
    pub(crate) fn prune(&self, scope: &Scope, dead: bool, keep: i64, limit: i64) -> Option<String> {
        let column = if dead { &self.dead_at } else { &self.processed_at };
        let (id, column) = (&self.id.name, &column.as_ref()?.name);
        let group = match (&self.group, &scope.group) {
            (Some(column), Some(group)) => {
                format!(
                    " AND {} = {}",
                    column.name,
                    self.flavour.bytes(group.as_bytes(), &column.kind)
                )
            }
            _ => String::new(),
        };
        let before = self.flavour.later(-keep);
        Some(format!(
            "DELETE FROM {table} WHERE {id} IN (SELECT {id} FROM (SELECT {id} FROM {table} WHERE {column} < {before}{group} \
             LIMIT {limit}) AS old)",
            table = self.table
        ))
    }

    /// Stores a message that has no struct. `run_at` is in milliseconds since 1970, or `delay` from now.
    pub(crate) fn store(&self, group: &str, row: &crate::operation::NewRow) -> String {
        let mut names = vec![self.run_at.name.as_str()];
        let extras = row.extras.as_deref();
        let mut values = vec![match extras.and_then(|extras| extras.run_at) {
            Some(at) => self.flavour.time(at),
            None => self.flavour.later(row.delay),
        }];
        let mut add = |column: &'_ Option<super::layout::Column>, bytes: Option<&[u8]>| {
            if let (Some(column), Some(bytes)) = (column, bytes) {
                values.push(self.flavour.bytes(bytes, &column.kind));
                true
            } else {
                false
            }
        };
        let columns = [
            (&self.group, Some(group.as_bytes())),
            (&self.payload, Some(&row.payload[..])),
            (&self.headers, row.headers.as_deref()),
            (&self.key, row.key.as_deref()),
        ];
        for (column, bytes) in columns {
            if add(column, bytes)
                && let Some(column) = column
            {
                names.push(&column.name);
            }
        }
        if let (Some(column), Some(extras)) = (&self.priority, extras) {
            names.push(&column.name);
            values.push(extras.priority.to_string());
        }
        format!(
            "INSERT INTO {} ({}) VALUES ({})",
            self.table,
            names.join(", "),
            values.join(", ")
        )
    }
}

/// The insert of a row that has a struct.
pub(crate) fn insert(flavour: Flavour, spec: &TableSpec, rows: usize) -> String {
    let columns: Vec<_> = spec.columns.iter().filter(|column| !column.generated).collect();
    let names: Vec<String> = columns.iter().map(|column| flavour.quote(column.name)).collect();
    let mut next = 0;
    let mut mark = || {
        next += 1;
        if flavour == Flavour::Postgres {
            format!("${next}")
        } else {
            "?".to_owned()
        }
    };
    let one = |mark: &mut dyn FnMut() -> String| {
        let marks: Vec<String> = columns.iter().map(|_| mark()).collect();
        format!("({})", marks.join(", "))
    };
    let all: Vec<String> = (0..rows).map(|_| one(&mut mark)).collect();
    format!(
        "INSERT INTO {} ({}) VALUES {}",
        flavour.table(spec),
        names.join(", "),
        all.join(", ")
    )
}

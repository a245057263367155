//! The statements, in the words of each database. What differs is named once, here.

use std::fmt::Write as _;

/// Whose words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    MySql,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

impl Dialect {
    /// The time, in milliseconds since 1970: of the server, when the statement began.
    pub(super) const fn now(self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres => "(extract(epoch FROM statement_timestamp()) * 1000)::bigint",
            // Of UTC: no time zone of a session, and no hour that comes twice a year.
            #[cfg(feature = "mysql")]
            Self::MySql => "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
            #[cfg(feature = "sqlite")]
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        }
    }

    /// Whether parameters are numbered in its statements.
    const fn numbers(self) -> bool {
        self.is_postgres()
    }

    /// Whether a transaction can tell others that it has committed.
    const fn tells(self) -> bool {
        self.is_postgres()
    }

    #[allow(unreachable_patterns, reason = "by the features that are on")]
    const fn is_postgres(self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres => true,
            _ => false,
        }
    }

    /// A statement written with `?` and `{now}`.
    pub(super) fn text(self, template: &str) -> String {
        let template = template.replace("{now}", self.now());
        if !self.numbers() {
            return template;
        }
        let mut text = String::with_capacity(template.len() + 8);
        for (place, piece) in template.split('?').enumerate() {
            if place > 0 {
                let _ = write!(text, "${place}");
            }
            text.push_str(piece);
        }
        text
    }

    /// The insert of so many records: destination, key, headers, payload each. The delays stand in the text: there seldom is one.
    pub(super) fn insert(self, delays: &[i64], notify: bool) -> String {
        let mut text =
            "INSERT INTO ruststream_outbox (destination, message_key, headers, payload, due_at) VALUES ".to_owned();
        for (row, delay) in delays.iter().enumerate() {
            if row > 0 {
                text.push(',');
            }
            if *delay > 0 {
                let _ = write!(text, "(?, ?, ?, ?, {{now}} + {delay})");
            } else {
                text.push_str("(?, ?, ?, ?, 0)");
            }
        }
        if notify && self.tells() {
            // Once a transaction: the server drops what was told before.
            text.push_str(" RETURNING pg_catalog.pg_notify('ruststream_outbox', '') IS NULL");
        }
        self.text(&text)
    }

    /// The insert of so many tracked messages: id, destination, key, headers, payload, wait each.
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    pub(super) fn track(self, rows: usize) -> String {
        let mut text =
            "INSERT INTO ruststream_tracked (id, destination, message_key, headers, payload, resend_at) VALUES "
                .to_owned();
        for row in 0..rows {
            text.push_str(if row > 0 {
                ",(?, ?, ?, ?, ?, {now} + ?)"
            } else {
                "(?, ?, ?, ?, ?, {now} + ?)"
            });
        }
        self.text(&text)
    }

    /// What may be published now, as a condition on `ruststream_outbox`.
    pub(super) fn claimable(self, parked_stop: bool) -> String {
        let stopped = if parked_stop {
            " UNION ALL SELECT message_key FROM ruststream_outbox WHERE state = 1 AND message_key IS NOT NULL"
        } else {
            ""
        };
        self.text(&format!(
            "state = 0 AND due_at = 0 AND (held_until IS NULL OR held_until <= {{now}}) AND (message_key IS NULL OR \
             message_key NOT IN (SELECT message_key FROM ruststream_outbox WHERE held_until > {{now}} \
             AND message_key IS NOT NULL{stopped}))"
        ))
    }
}

/// How many rows one insert takes of a group of `rows`. Few sizes, so that each statement is prepared once and found again.
pub(super) const fn insert_size(rows: usize) -> usize {
    match rows {
        64.. => 64,
        16.. => 16,
        4.. => 4,
        _ => 1,
    }
}

/// The columns of a record in hand.
pub(super) const RECORD: &str = "id, attempts, destination, message_key, headers, payload";

/// What leads to being claimable by time: records that were delayed.
pub(super) const PROMOTE: &str =
    "UPDATE ruststream_outbox SET due_at = 0 WHERE state = 0 AND due_at > 0 AND due_at <= {now}";

pub(super) const RETRY: &str = "UPDATE ruststream_outbox SET attempts = ?, held_until = {now} + ?, token = 0, error = ? \
                                WHERE id = ? AND token = ?";

pub(super) const PARK: &str = "UPDATE ruststream_outbox SET attempts = ?, state = 1, held_until = NULL, token = 0, error = ?, \
                               ended_at = {now} WHERE id = ? AND token = ?";

pub(super) const WAITING: &str = "SELECT \
    (SELECT count(*) FROM ruststream_outbox WHERE state = 0 AND due_at = 0), \
    (SELECT count(*) FROM ruststream_outbox WHERE state = 0 AND due_at > 0), \
    (SELECT count(*) FROM ruststream_outbox WHERE state = 1), \
    {now} - (SELECT min(written_at) FROM ruststream_outbox WHERE state = 0 AND due_at = 0)";

pub(super) const GIVEN_UP: &str = "SELECT id, attempts, destination, message_key, headers, payload, coalesce(error, ''), \
                                   written_at, coalesce(ended_at, 0) FROM ruststream_outbox WHERE state = 1 AND id > ? \
                                   ORDER BY id LIMIT ?";

pub(super) const TRACKED_REPLAY: &str = "UPDATE ruststream_tracked SET state = 0, attempts = 0, ended_at = NULL, \
                                         resend_at = {now} WHERE state = 1";

pub(super) const TRACKED_COUNTS: &str = "SELECT (SELECT count(*) FROM ruststream_tracked WHERE state = 0), \
                                         (SELECT count(*) FROM ruststream_tracked WHERE state = 1)";

/// What a replayed record is like.
pub(super) const REPLAYED: &str = "state = 0, due_at = 0, held_until = NULL, token = 0, ended_at = NULL";

/// How many attempts a replayed record has behind it: with those it had, it has one more.
pub(super) const fn replayed_attempts(keep: bool) -> &'static str {
    if keep {
        "attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END"
    } else {
        "attempts = 0"
    }
}

/// The condition on what is old enough to go, with the name of its table and of its key.
pub(super) const fn old(old: super::Old) -> (&'static str, &'static str, &'static str) {
    match old {
        super::Old::Published => ("ruststream_outbox", "id", "state = 2 AND ended_at <= {now} - ?"),
        super::Old::Tracked => ("ruststream_tracked", "id", "state >= 2 AND ended_at <= {now} - ?"),
        super::Old::Receipts => (
            "ruststream_receipts",
            "consumer, message_id",
            "received_at <= {now} - ?",
        ),
    }
}

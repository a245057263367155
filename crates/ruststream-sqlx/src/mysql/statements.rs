//! The constant parts of the statements. A row that no one holds has the token 0.

/// Rows that someone locks are passed by or waited for, never guarded against new neighbours.
pub(super) const SESSION: &str =
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION innodb_lock_wait_timeout = 5";

pub(super) const ROLLBACK: &str = "ROLLBACK";

/// Id, token.
pub(super) const ACK_ONE: &str = "DELETE FROM ruststream_messages WHERE id = ? AND token = ?";

/// What is due and no one holds: before it the columns, behind it the number of rows.
macro_rules! due {
    ($queue:expr) => {
        format_args!(
            "FROM ruststream_messages FORCE INDEX (ruststream_messages_due) \
             WHERE queue = {} AND state = 0 AND due_at <= UTC_TIMESTAMP(6) AND lease_until <= UTC_TIMESTAMP(6) \
             ORDER BY due_at, id",
            $queue
        )
    };
}
pub(super) use due;

/// A time as microseconds since 1970.
macro_rules! since_1970 {
    ($column:literal) => {
        concat!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ", $column, ")")
    };
}
pub(super) use since_1970;

/// The end of a lease that no one has.
pub(super) const FREE: &str = "token = 0, lease_until = '1970-01-01'";

/// How many rows one insert takes of a group of `rows`. Few sizes, so that each statement is prepared once and found again.
pub(super) const fn insert_size(rows: usize) -> usize {
    match rows {
        256.. => 256,
        64.. => 64,
        16.. => 16,
        _ => rows,
    }
}

/// The insert of so many rows: queue, delay in microseconds, key, headers, payload each.
pub(super) fn insert(rows: usize) -> String {
    const VALUES: &str = "(?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, ?, ?)";
    let mut text = "INSERT INTO ruststream_messages (queue, due_at, message_key, headers, payload) VALUES ".to_owned();
    for row in 0..rows {
        if row > 0 {
            text.push(',');
        }
        text.push_str(VALUES);
    }
    text
}

pub(super) const DEAD_COLUMNS: &str = concat!(
    "SELECT id, queue, coalesce(dead_reason, ''), coalesce(dead_error, ''), \
     CAST(coalesce(dead_attempts, attempt) AS SIGNED), coalesce(dead_source, ''), ",
    since_1970!("coalesce(dead_at, published_at)"),
    ", ",
    since_1970!("published_at"),
    ", message_key, headers, payload FROM ruststream_messages"
);

macro_rules! replay {
    ($attempts:literal) => {
        concat!(
            "UPDATE ruststream_messages SET state = 0, due_at = UTC_TIMESTAMP(6), attempt = ",
            $attempts,
            ", dead_reason = NULL, dead_error = NULL, dead_attempts = NULL, dead_source = NULL, dead_at = NULL"
        )
    };
}

pub(super) const REPLAY: &str = replay!("0");

/// As [`REPLAY`], their attempts count on.
pub(super) const REPLAY_KEPT: &str = replay!("coalesce(dead_attempts, attempt)");

//! The constant parts of the statements. A row that no one holds has the token 0.

use crate::operation::Choice;

/// Rows that someone locks are passed by or waited for, never guarded against new neighbours.
pub(super) const SESSION: &str =
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION innodb_lock_wait_timeout = 5";

pub(super) const ROLLBACK: &str = "ROLLBACK";

/// The start of a delete by ids. Each statement by ids goes by the key: of a small table the server would rather read all rows, and
/// wait for those that others have locked.
pub(super) const DELETE: &str = "DELETE m FROM ruststream_messages AS m FORCE INDEX (PRIMARY)";

/// Id, token.
pub(super) const ACK_ONE: &str = "DELETE FROM ruststream_messages WHERE id = ? AND token = ?";

/// Id, token.
pub(super) const LOCK_ONE: &str = "SELECT 1 FROM ruststream_messages WHERE id = ? AND token = ? FOR UPDATE";

/// No other of its key is in hand, or comes before it.
const FIRST_OF_ITS_KEY: &str = " AND (m.message_key IS NULL OR NOT EXISTS (SELECT 1 FROM ruststream_messages AS e \
     FORCE INDEX (ruststream_messages_key) WHERE e.queue = m.queue AND e.state = 0 AND e.message_key = m.message_key AND e.id <> m.id \
     AND (e.lease_until > UTC_TIMESTAMP(6) OR (e.id < m.id AND (e.attempt > 0 OR e.due_at <= UTC_TIMESTAMP(6))))))";

/// What is due and no one holds, of a queue as it stands in a text: before it the columns, behind it the number of rows.
/// `urgent` says whether those with a priority are meant, where it makes a difference.
pub(super) fn due(queue: &str, choice: Choice, urgent: bool) -> String {
    let (index, priority, order) = match (choice.priority, urgent) {
        (true, true) => (
            "ruststream_messages_priority",
            " AND m.priority > 0",
            "m.priority DESC, ",
        ),
        (true, false) => ("ruststream_messages_due", " AND m.priority = 0", ""),
        (false, _) => ("ruststream_messages_due", "", ""),
    };
    let first = if choice.fifo { FIRST_OF_ITS_KEY } else { "" };
    format!(
        "FROM ruststream_messages AS m FORCE INDEX ({index}) \
         WHERE m.queue = {queue} AND m.state = 0 AND m.due_at <= UTC_TIMESTAMP(6) AND m.lease_until <= UTC_TIMESTAMP(6)\
         {priority}{first} ORDER BY {order}m.due_at, m.id"
    )
}

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

/// One row that has more: queue, time in microseconds since 1970 or null, delay in microseconds, key, headers, payload, priority, unique
/// key. Refused where the unique key is there.
pub(super) const INSERT_MORE: &str = "INSERT INTO ruststream_messages \
     (queue, due_at, message_key, headers, payload, priority, unique_key) \
     VALUES (?, COALESCE('1970-01-01' + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND), ?, ?, ?, ?, ?)";

/// Queue, group, its place.
pub(super) const JOIN_GROUP: &str = "INSERT IGNORE INTO ruststream_groups (queue, name, place) VALUES (?, ?, ?)";

/// A name. The lock is named `DATABASE/NAME`, or by the MD5 of that where it has more than 64 letters: the server takes no more.
pub(super) const TRY_LOCK: &str =
    "SELECT GET_LOCK(IF(CHAR_LENGTH(n) > 64, MD5(n), n), 0) FROM (SELECT CONCAT(DATABASE(), '/', ?) AS n) AS t";

/// A name.
pub(super) const UNLOCK: &str =
    "SELECT RELEASE_LOCK(IF(CHAR_LENGTH(n) > 64, MD5(n), n)) FROM (SELECT CONCAT(DATABASE(), '/', ?) AS n) AS t";

/// The name of an index.
pub(super) const HAS_INDEX: &str = "SELECT 1 FROM information_schema.statistics \
     WHERE table_schema = DATABASE() AND table_name = 'ruststream_messages' AND index_name = ? LIMIT 1";

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

/// The start of an update that keeps a row for so many milliseconds as done.
pub(super) fn keep(millis: i64) -> String {
    let micros = super::answers::micros(millis);
    format!(
        "UPDATE ruststream_messages FORCE INDEX (PRIMARY) SET {FREE}, state = 2, processed_at = UTC_TIMESTAMP(6), \
         due_at = UTC_TIMESTAMP(6) + INTERVAL {micros} MICROSECOND"
    )
}

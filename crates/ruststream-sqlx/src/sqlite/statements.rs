//! Every statement on the table.
//!
//! The texts are constant, so that each is prepared once. Lists of ids travel as JSON.

use crate::operation::Choice;

/// The token of a row that no one has leased; the leases' own are below.
pub(super) const FREE: i64 = i64::MAX;

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE;";
pub(super) const COMMIT: &str = "COMMIT;";
pub(super) const ROLLBACK: &str = "ROLLBACK";

macro_rules! due {
    ($index:literal, $more:expr, $order:literal) => {
        concat!(
            "FROM ruststream_messages AS m INDEXED BY ",
            $index,
            " WHERE m.state = 0 AND m.queue = ? AND m.due_at <= ?",
            $more,
            " ORDER BY ",
            $order,
            "m.due_at, m.id LIMIT ?"
        )
    };
}

/// No other of its key is in hand, or comes before it. A row in hand is due when its lease ends.
macro_rules! first_of_its_key {
    () => {
        " AND (m.key IS NULL OR NOT EXISTS (SELECT 1 FROM ruststream_messages AS e INDEXED BY ruststream_messages_key \
         WHERE e.queue = m.queue AND e.key = m.key AND e.state = 0 AND e.key IS NOT NULL AND e.id <> m.id \
         AND (e.id < m.id AND (e.attempt > 0 OR e.due_at <= unixepoch('subsec') * 1000) \
              OR e.token <> 9223372036854775807 AND e.due_at > unixepoch('subsec') * 1000)))"
    };
}

macro_rules! columns {
    () => {
        "SELECT m.id, m.attempt, m.published_at, m.key, m.headers, m.payload, m.token "
    };
}

macro_rules! plain {
    ($columns:expr, $more:expr) => {
        concat!($columns, due!("ruststream_messages_due", $more, ""))
    };
}

/// Those with a priority, then those without: queue, now, room, twice, and room.
macro_rules! by_priority {
    ($columns:expr, $more:expr) => {
        concat!(
            "SELECT * FROM (SELECT * FROM (",
            $columns,
            due!(
                "ruststream_messages_priority",
                concat!(" AND m.priority > 0", $more),
                "m.priority DESC, "
            ),
            ") UNION ALL SELECT * FROM (",
            $columns,
            due!("ruststream_messages_due", concat!(" AND m.priority = 0", $more), ""),
            ")) LIMIT ?"
        )
    };
}

macro_rules! lease {
    ($ids:expr) => {
        concat!(
            "UPDATE ruststream_messages SET due_at = ?, token = ?, attempt = attempt + 1 WHERE id IN (",
            $ids,
            ");"
        )
    };
}

/// Reads what is due, in order, and leases the same rows: both statements stand in one transaction. Of the first: queue, now, room. Of
/// the second: end of the lease, token, queue, now, room. By priority, queue, now and room stand twice, and room once more.
pub(super) const fn claim(choice: Choice) -> (&'static str, &'static str) {
    match (choice.fifo, choice.priority) {
        (false, false) => (concat!(plain!(columns!(), ""), ";"), lease!(plain!("SELECT m.id ", ""))),
        (true, false) => (
            concat!(plain!(columns!(), first_of_its_key!()), ";"),
            lease!(plain!("SELECT m.id ", first_of_its_key!())),
        ),
        (false, true) => (
            concat!(by_priority!(columns!(), ""), ";"),
            lease!(by_priority!("SELECT m.id ", "")),
        ),
        (true, true) => (
            concat!(by_priority!(columns!(), first_of_its_key!()), ";"),
            lease!(by_priority!("SELECT m.id ", first_of_its_key!())),
        ),
    }
}

/// Gives messages that are due to the groups of their queue, in order: first the copies, then away with the originals. Queue, now,
/// limit each.
pub(super) const SHARE: &str = concat!(
    "INSERT OR IGNORE INTO ruststream_messages \
     (queue, due_at, published_at, attempt, priority, unique_key, key, headers, payload) \
     SELECT g.place, t.due_at, t.published_at, t.attempt, t.priority, t.unique_key, t.key, t.headers, t.payload \
     FROM (",
    plain!("SELECT m.* ", ""),
    ") AS t JOIN ruststream_groups AS g ON g.queue = t.queue ORDER BY t.due_at, t.id;"
);
pub(super) const SHARED: &str = concat!(
    "DELETE FROM ruststream_messages WHERE id IN (",
    plain!("SELECT m.id ", ""),
    ");"
);

/// Queue, group, its place.
pub(super) const JOIN_GROUP: &str = "INSERT OR IGNORE INTO ruststream_groups (queue, name, place) VALUES (?, ?, ?);";

/// Queue, now, limit.
pub(super) const PRUNE: &str = "DELETE FROM ruststream_messages WHERE id IN (SELECT id FROM ruststream_messages \
     INDEXED BY ruststream_messages_done WHERE state = 2 AND queue = ? AND due_at <= ? ORDER BY due_at LIMIT ?);";

/// Queue, the latest time of death, limit.
pub(super) const PRUNE_DEAD: &str = "DELETE FROM ruststream_messages WHERE id IN (SELECT id FROM ruststream_messages \
     INDEXED BY ruststream_messages_dead WHERE state = 1 AND queue = ? AND dead_at < ? LIMIT ?);";

/// Free token, time, until when it stays, ids, token.
pub(super) const KEEP: &str = "UPDATE ruststream_messages SET state = 2, token = ?, processed_at = ?, due_at = ? \
                               WHERE id IN (SELECT value FROM json_each(?)) AND token = ?;";

/// Stores a reply, if its message is held still. Queue, due, published, key, headers, payload, priority, unique key, id, token.
pub(super) const REPLY: &str = "INSERT OR IGNORE INTO ruststream_messages \
     (queue, due_at, published_at, key, headers, payload, priority, unique_key) \
     SELECT ?, ?, ?, ?, ?, ?, ?, ? FROM ruststream_messages WHERE id = ? AND token = ?;";

/// Free token, `[id, token, due]` each.
pub(super) const DEFER: &str = "UPDATE ruststream_messages AS m SET due_at = j.value ->> 2, token = ?, \
                                attempt = max(m.attempt - 1, 0) FROM json_each(?) AS j \
                                WHERE m.id = j.value ->> 0 AND m.token = j.value ->> 1;";

/// One row that has more: queue, due, published, key, headers, payload, priority, unique key.
pub(super) const INSERT_MORE: &str = "INSERT INTO ruststream_messages \
     (queue, due_at, published_at, key, headers, payload, priority, unique_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
     ON CONFLICT (queue, unique_key) WHERE unique_key IS NOT NULL DO NOTHING;";

/// When the first row of a queue is due. Queue.
pub(super) const NEXT_DUE: &str = "SELECT due_at FROM ruststream_messages INDEXED BY ruststream_messages_due \
                                   WHERE state = 0 AND queue = ? ORDER BY due_at LIMIT 1;";

/// First id, last id, token.
pub(super) const ACK_RANGE: &str = "DELETE FROM ruststream_messages WHERE id BETWEEN ? AND ? AND token = ?;";

/// Ids, token.
pub(super) const ACK_LIST: &str =
    "DELETE FROM ruststream_messages WHERE id IN (SELECT value FROM json_each(?)) AND token = ?;";

/// Back to its place in the order of publishing. Now, free token, ids, token.
pub(super) const RELEASE: &str = "UPDATE ruststream_messages \
                                  SET due_at = min(published_at, ?), token = ?, attempt = max(attempt - 1, 0) \
                                  WHERE id IN (SELECT value FROM json_each(?)) AND token = ?;";

/// Now, free token, attempts, id, token.
pub(super) const RETURN: &str = "UPDATE ruststream_messages \
                                 SET due_at = min(published_at, ?), token = ?, attempt = ? WHERE id = ? AND token = ?;";

/// Free token, `[id, token, due]` each.
pub(super) const RETRY: &str = "UPDATE ruststream_messages AS m SET due_at = j.value ->> 2, token = ? FROM json_each(?) AS j \
                                WHERE m.id = j.value ->> 0 AND m.token = j.value ->> 1;";

/// Free token, reason, error, attempts, source, time, id, token.
pub(super) const DEAD: &str = "UPDATE ruststream_messages SET state = 1, token = ?, dead_reason = ?, dead_error = ?, \
                               dead_attempts = ?, dead_source = ?, dead_at = ? WHERE id = ? AND token = ?;";

/// End of the lease, `[id, token]` each.
pub(super) const RENEW: &str = "UPDATE ruststream_messages AS m SET due_at = ? FROM json_each(?) AS j \
                                WHERE m.id = j.value ->> 0 AND m.token = j.value ->> 1;";

/// `[id, token]` each; answers those that are not leased under this token, and whether the row is gone.
pub(super) const LOST: &str = "SELECT j.value ->> 0, j.value ->> 1, m.id IS NULL FROM json_each(?) AS j \
                               LEFT JOIN ruststream_messages AS m ON m.id = j.value ->> 0 \
                               WHERE m.token IS NOT j.value ->> 1;";

/// How many rows one insert takes of a group of `rows`. Few sizes, so that each statement is prepared once and found again;
/// every small size, so that a small group is one statement and needs no transaction around it.
pub(super) const fn insert_size(rows: usize) -> usize {
    match rows {
        64.. => 64,
        32.. => 32,
        16.. => 16,
        _ => rows,
    }
}

/// The values of one row: queue, due, published, key, headers, payload.
const INSERT_VALUES: &str = "(?, ?, ?, ?, ?, ?)";

/// Appends the insert of `rows` rows.
pub(super) fn insert(rows: usize, into: &mut String) {
    into.push_str("INSERT INTO ruststream_messages (queue, due_at, published_at, key, headers, payload) VALUES ");
    for row in 0..rows {
        if row > 0 {
            into.push(',');
        }
        into.push_str(INSERT_VALUES);
    }
    into.push(';');
}

/// Changes with every commit of another connection.
pub(super) const DATA_VERSION: &str = "PRAGMA data_version";

/// Reads a page of the file.
pub(super) const PING: &str = "SELECT version FROM ruststream_meta LIMIT 1";

macro_rules! dead_columns {
    () => {
        "SELECT id, queue, coalesce(dead_reason, ''), coalesce(dead_error, ''), coalesce(dead_attempts, attempt), \
         coalesce(dead_source, ''), coalesce(dead_at, published_at), published_at, key, headers, payload \
         FROM ruststream_messages "
    };
}

/// Queue, id to start after, limit.
pub(super) const DEAD_LIST: &str = concat!(
    dead_columns!(),
    "WHERE state = 1 AND queue = ? AND id > ? ORDER BY id LIMIT ?"
);

/// Id.
pub(super) const DEAD_SHOW: &str = concat!(dead_columns!(), "WHERE id = ? AND state = 1");

macro_rules! replay {
    ($attempts:literal) => {
        concat!(
            "UPDATE ruststream_messages SET state = 0, due_at = ?, token = ?, attempt = ",
            $attempts,
            ", dead_reason = NULL, dead_error = NULL, dead_attempts = NULL, dead_source = NULL, dead_at = NULL WHERE "
        )
    };
}

macro_rules! dead_batch {
    () => {
        "id IN (SELECT id FROM ruststream_messages WHERE state = 1 AND queue = ? AND id > ? ORDER BY id LIMIT ?) \
         RETURNING id;"
    };
}

/// Now, free token, id.
pub(super) const REPLAY: &str = concat!(replay!("0"), "id = ? AND state = 1 RETURNING id;");

/// Now, free token, id. As [`REPLAY`], its attempts count on.
pub(super) const REPLAY_KEPT: &str = concat!(
    replay!("coalesce(dead_attempts, attempt)"),
    "id = ? AND state = 1 RETURNING id;"
);

/// Now, free token, queue, id to start after, limit.
pub(super) const REPLAY_QUEUE: &str = concat!(replay!("0"), dead_batch!());

/// Id.
pub(super) const PURGE: &str = "DELETE FROM ruststream_messages WHERE id = ? AND state = 1 RETURNING id;";

/// Queue, id to start after, limit.
pub(super) const PURGE_QUEUE: &str = concat!("DELETE FROM ruststream_messages WHERE ", dead_batch!());

/// Now three times, queue twice.
pub(super) const COUNTS: &str = "SELECT coalesce(sum(due_at <= ?), 0), \
                                 coalesce(sum(due_at > ? AND token <> 9223372036854775807), 0), \
                                 coalesce(sum(due_at > ? AND token = 9223372036854775807), 0), \
                                 (SELECT count(*) FROM ruststream_messages WHERE state = 1 AND queue = ?) \
                                 FROM ruststream_messages WHERE state = 0 AND queue = ?";

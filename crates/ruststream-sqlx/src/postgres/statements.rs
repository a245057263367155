//! Every statement on the table. A row that no one holds has the token 0. Lists travel as arrays, so that each text is one and is
//! prepared once. What is due later counts from its statement, and not from a transaction that began long before.

/// Each statement here finds its rows by an index. What the planner knows of a queue is always old: it was empty a moment ago,
/// or full. And a plan is kept for as long as its statement.
pub(super) const PLAN: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; \
                               SET enable_mergejoin = off; SET jit = off; SET ruststream.tells = 'itself'";

/// The same for one transaction.
pub(super) const PLAN_WITHIN: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
                                      SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off; \
                                      SET LOCAL ruststream.tells = 'itself'";

/// Leases what is due and no one holds. Queue, room, lease in ms, token.
///
/// `ctid` names the rows without a second search: they are locked by then and stay where they are. Rows that someone locks are
/// passed by, so that it never waits, and no deadlock has it as a part.
macro_rules! claim {
    ($rows:expr) => {
        concat!(
            "
    UPDATE ruststream_messages
    SET lease_until = now() + $3 * interval '1 millisecond', unfinished = token <> 0, token = $4, attempt = attempt + 1
    WHERE ctid = ANY (ARRAY (",
            $rows,
            "))
    RETURNING id, due_at, attempt, unfinished, published_at, key, headers, payload, priority"
        )
    };
}

/// Rows that are due and that no one holds, by their places. `$extra` narrows them further.
macro_rules! due {
    ($extra:expr, $order:literal) => {
        concat!(
            "SELECT m.ctid FROM ruststream_messages AS m
             WHERE m.queue = $1 AND m.state = 0 AND m.due_at <= now() AND m.lease_until <= now()",
            $extra,
            " ORDER BY ",
            $order,
            "m.due_at, m.id LIMIT $2 FOR UPDATE OF m SKIP LOCKED"
        )
    };
}

/// Those with a priority, then those without.
macro_rules! by_priority {
    ($extra:expr) => {
        concat!(
            "SELECT q.ctid FROM (
             SELECT u.ctid FROM (",
            due!(concat!(" AND m.priority > 0", $extra), "m.priority DESC, "),
            ") AS u UNION ALL SELECT n.ctid FROM (",
            due!(concat!(" AND m.priority = 0", $extra), ""),
            ") AS n) AS q LIMIT $2"
        )
    };
}

/// No other of its key is in hand, or comes before it.
macro_rules! first_of_its_key {
    () => {
        " AND (m.key IS NULL OR NOT EXISTS (
            SELECT FROM ruststream_messages AS e
            WHERE e.queue = m.queue AND e.key = m.key AND e.state = 0 AND e.id <> m.id
            AND (e.lease_until > now() OR (e.id < m.id AND (e.attempt > 0 OR e.due_at <= now())))))"
    };
}

pub(super) const CLAIM: &str = claim!(due!("", ""));
pub(super) const CLAIM_FIFO: &str = claim!(due!(first_of_its_key!(), ""));
pub(super) const CLAIM_BY_PRIORITY: &str = claim!(by_priority!(""));
pub(super) const CLAIM_FIFO_BY_PRIORITY: &str = claim!(by_priority!(first_of_its_key!()));

/// Gives messages that are due to the groups of their queue, in order. Queue, limit.
pub(super) const SHARE: &str = "
    WITH taken AS (
        DELETE FROM ruststream_messages WHERE ctid = ANY (ARRAY (
            SELECT ctid FROM ruststream_messages
            WHERE queue = $1 AND state = 0 AND due_at <= now() AND lease_until <= now()
            ORDER BY due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED))
        RETURNING *)
    INSERT INTO ruststream_messages (queue, due_at, published_at, attempt, priority, unique_key, key, headers, payload)
    SELECT g.place, t.due_at, t.published_at, t.attempt, t.priority, t.unique_key, t.key, t.headers, t.payload
    FROM taken AS t JOIN ruststream_groups AS g ON g.queue = t.queue ORDER BY t.due_at, t.id
    ON CONFLICT (queue, unique_key) WHERE unique_key IS NOT NULL DO NOTHING";

/// Queue, group, its place.
pub(super) const JOIN_GROUP: &str =
    "INSERT INTO ruststream_groups (queue, name, place) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

/// Queue, limit.
pub(super) const PRUNE: &str = "
    DELETE FROM ruststream_messages WHERE ctid = ANY (ARRAY (
        SELECT ctid FROM ruststream_messages WHERE queue = $1 AND state = 2 AND due_at <= now()
        ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

/// Queue, how long dead letters stay in ms, limit.
pub(super) const PRUNE_DEAD: &str = "
    DELETE FROM ruststream_messages WHERE ctid = ANY (ARRAY (
        SELECT ctid FROM ruststream_messages
        WHERE queue = $1 AND state = 1 AND dead_at < now() - $2 * interval '1 millisecond'
        ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED))";

/// When the first row of each queue is due that no one holds, and the time now. Queues.
pub(super) const PEEK: &str = "
    SELECT (SELECT m.due_at FROM ruststream_messages AS m
            WHERE m.queue = q.queue AND m.state = 0 AND m.lease_until <= now() ORDER BY m.due_at, m.id LIMIT 1), now()
    FROM unnest($1::text[]) WITH ORDINALITY AS q (queue, n) ORDER BY q.n";

/// Ids, tokens.
pub(super) const ACK: &str = "
    DELETE FROM ruststream_messages AS m USING unnest($1::bigint[], $2::bigint[]) AS s (id, token)
    WHERE m.id = s.id AND m.token = s.token";

/// Id, token.
pub(super) const ACK_ONE: &str = "DELETE FROM ruststream_messages WHERE id = $1 AND token = $2";

/// Ids, tokens, how long they stay in ms.
pub(super) const KEEP: &str = "
    UPDATE ruststream_messages AS m
    SET state = 2, token = 0, lease_until = '-infinity', processed_at = statement_timestamp(), due_at = statement_timestamp() + s.keep * interval '1 millisecond'
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS s (id, token, keep) WHERE m.id = s.id AND m.token = s.token";

/// Ids, tokens, how long they stay in ms or null; then the replies, a list for each column: whose ids, queues, delays, keys, headers, payloads.
/// Answers how many were held: what was not is not answered.
pub(super) const ANSWER: &str = "
    WITH asked AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS s (id, token, keep)),
    gone AS (
        DELETE FROM ruststream_messages AS m USING asked AS s
        WHERE s.keep IS NULL AND m.id = s.id AND m.token = s.token RETURNING m.id),
    done AS (
        UPDATE ruststream_messages AS m
        SET state = 2, token = 0, lease_until = '-infinity', processed_at = statement_timestamp(),
            due_at = statement_timestamp() + s.keep * interval '1 millisecond'
        FROM asked AS s WHERE s.keep IS NOT NULL AND m.id = s.id AND m.token = s.token RETURNING m.id),
    held AS (SELECT id FROM gone UNION ALL SELECT id FROM done),
    stored AS (
        INSERT INTO ruststream_messages (queue, due_at, priority, unique_key, key, headers, payload)
        SELECT r.queue, coalesce(timestamptz 'epoch' + r.run_at * interval '1 millisecond', statement_timestamp() + r.delay * interval '1 millisecond'),
               r.priority, r.unique_key, r.key, r.headers, r.payload
        FROM unnest($4::bigint[], $5::text[], $6::bigint[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bigint[], $11::smallint[],
                    $12::text[])
             WITH ORDINALITY AS r (id, queue, delay, key, headers, payload, run_at, priority, unique_key, n)
        JOIN held ON held.id = r.id ORDER BY r.n
        ON CONFLICT (queue, unique_key) WHERE unique_key IS NOT NULL DO NOTHING)
    SELECT count(*) FROM held";

/// Ids, tokens, how long to leave them alone in ms.
pub(super) const DEFER: &str = "
    UPDATE ruststream_messages AS m
    SET token = 0, lease_until = statement_timestamp() + s.delay * interval '1 millisecond', attempt = greatest(m.attempt - 1, 0)
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS s (id, token, delay) WHERE m.id = s.id AND m.token = s.token";

/// Id, token.
pub(super) const LOCK_ONE: &str = "SELECT 1 FROM ruststream_messages WHERE id = $1 AND token = $2 FOR UPDATE";

/// Ids, tokens.
pub(super) const RELEASE: &str = "
    UPDATE ruststream_messages AS m SET token = 0, lease_until = '-infinity', attempt = greatest(m.attempt - 1, 0)
    FROM unnest($1::bigint[], $2::bigint[]) AS s (id, token) WHERE m.id = s.id AND m.token = s.token";

/// Ids, tokens, attempts.
pub(super) const RETURN: &str = "
    UPDATE ruststream_messages AS m SET token = 0, lease_until = '-infinity', attempt = s.attempt
    FROM unnest($1::bigint[], $2::bigint[], $3::integer[]) AS s (id, token, attempt)
    WHERE m.id = s.id AND m.token = s.token";

/// Ids, tokens, delays in ms.
pub(super) const RETRY: &str = "
    UPDATE ruststream_messages AS m
    SET token = 0, lease_until = '-infinity', due_at = statement_timestamp() + s.delay * interval '1 millisecond'
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS s (id, token, delay)
    WHERE m.id = s.id AND m.token = s.token";

/// Ids, tokens, reasons, errors, attempts, sources, times in ms since 1970.
pub(super) const DEAD: &str = "
    UPDATE ruststream_messages AS m
    SET state = 1, token = 0, lease_until = '-infinity', dead_reason = s.reason, dead_error = s.error,
        dead_attempts = s.attempts, dead_source = s.source,
        dead_at = timestamptz 'epoch' + s.at * interval '1 millisecond'
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[])
         AS s (id, token, reason, error, attempts, source, at)
    WHERE m.id = s.id AND m.token = s.token";

/// Queues, delays in ms, keys, headers, payloads.
pub(super) const STORE: &str = "
    INSERT INTO ruststream_messages (queue, due_at, key, headers, payload)
    SELECT queue, statement_timestamp() + delay * interval '1 millisecond', key, headers, payload
    FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[])
         AS s (queue, delay, key, headers, payload)";

/// The same for one row.
pub(super) const STORE_ONE: &str = "
    INSERT INTO ruststream_messages (queue, due_at, key, headers, payload)
    VALUES ($1, statement_timestamp() + $2 * interval '1 millisecond', $3, $4, $5)";

/// As `STORE`, of rows that have more: then times in ms since 1970, priorities, unique keys. Answers the queues and unique keys of
/// what is new.
pub(super) const STORE_MORE: &str = "
    INSERT INTO ruststream_messages (queue, due_at, key, headers, payload, priority, unique_key)
    SELECT queue, coalesce(timestamptz 'epoch' + run_at * interval '1 millisecond', statement_timestamp() + delay * interval '1 millisecond'),
           key, headers, payload, priority, unique_key
    FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bigint[], $7::smallint[], $8::text[])
         WITH ORDINALITY AS s (queue, delay, key, headers, payload, run_at, priority, unique_key, n) ORDER BY n
    ON CONFLICT (queue, unique_key) WHERE unique_key IS NOT NULL DO NOTHING RETURNING queue, unique_key";

/// As `STORE`, and tells of queues. Then: tag, queues to tell of.
pub(super) const STORE_AND_TELL: &str = "
    WITH stored AS (
        INSERT INTO ruststream_messages (queue, due_at, key, headers, payload)
        SELECT queue, statement_timestamp() + delay * interval '1 millisecond', key, headers, payload
        FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[])
             AS s (queue, delay, key, headers, payload))
    SELECT pg_notify('ruststream_' || 'ruststream_messages'::regclass::oid, $6 || '/' || queue) FROM unnest($7::text[]) AS q (queue)";

/// Tag, queues.
pub(super) const TELL: &str = "
    SELECT pg_notify('ruststream_' || 'ruststream_messages'::regclass::oid, $1 || '/' || queue) FROM unnest($2::text[]) AS q (queue)";

/// The channel of this table.
pub(super) const CHANNEL: &str = "SELECT 'ruststream_' || 'ruststream_messages'::regclass::oid";

/// Channel, text.
pub(super) const ECHO: &str = "SELECT pg_notify($1, $2)";

/// Ids and tokens, ascending; lease in ms. What someone has locked is being settled or was lost: it never waits.
pub(super) const RENEW: &str = "
    WITH held AS MATERIALIZED (
        SELECT m.id FROM unnest($1::bigint[], $2::bigint[]) AS s (id, token)
        JOIN ruststream_messages AS m ON m.id = s.id AND m.token = s.token
        ORDER BY m.id FOR UPDATE OF m SKIP LOCKED)
    UPDATE ruststream_messages AS m SET lease_until = now() + $3 * interval '1 millisecond'
    FROM held WHERE m.id = held.id";

/// Ids, tokens; answers those that are not held under this token, and whether the row is gone.
pub(super) const LOST: &str = "
    SELECT s.id, s.token, m.id IS NULL FROM unnest($1::bigint[], $2::bigint[]) AS s (id, token)
    LEFT JOIN ruststream_messages AS m ON m.id = s.id WHERE m.token IS DISTINCT FROM s.token";

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
    "WHERE state = 1 AND queue = $1 AND id > $2 ORDER BY id LIMIT $3"
);

/// Id.
pub(super) const DEAD_SHOW: &str = concat!(dead_columns!(), "WHERE id = $1 AND state = 1");

macro_rules! replay {
    ($attempts:literal) => {
        concat!(
            "UPDATE ruststream_messages SET state = 0, due_at = now(), attempt = ",
            $attempts,
            ", dead_reason = NULL, dead_error = NULL, dead_attempts = NULL, dead_source = NULL, dead_at = NULL WHERE "
        )
    };
}

macro_rules! dead_batch {
    () => {
        "id = ANY (ARRAY (SELECT id FROM ruststream_messages WHERE state = 1 AND queue = $1 AND id > $2 \
         ORDER BY id LIMIT $3 FOR UPDATE)) RETURNING id"
    };
}

/// Id.
pub(super) const REPLAY: &str = concat!(replay!("0"), "id = $1 AND state = 1 RETURNING id");

/// Id. As [`REPLAY`], its attempts count on.
pub(super) const REPLAY_KEPT: &str = concat!(
    replay!("coalesce(dead_attempts, attempt)"),
    "id = $1 AND state = 1 RETURNING id"
);

/// Queue, id to start after, limit.
pub(super) const REPLAY_QUEUE: &str = concat!(replay!("0"), dead_batch!());

/// Id.
pub(super) const PURGE: &str = "DELETE FROM ruststream_messages WHERE id = $1 AND state = 1 RETURNING id";

/// Queue, id to start after, limit.
pub(super) const PURGE_QUEUE: &str = concat!("DELETE FROM ruststream_messages WHERE ", dead_batch!());

/// Queue.
pub(super) const COUNTS: &str = "
    SELECT count(*) FILTER (WHERE due_at <= now() AND lease_until <= now()),
           count(*) FILTER (WHERE lease_until > now()),
           count(*) FILTER (WHERE due_at > now() AND lease_until <= now()),
           (SELECT count(*) FROM ruststream_messages WHERE queue = $1 AND state = 1)
    FROM ruststream_messages WHERE queue = $1 AND state = 0";

/// Names. The key of a lock is `hashtextextended('SCHEMA/NAME', 0)`, with the schema of the table.
pub(super) const TRY_LOCK: &str = "
    SELECT pg_try_advisory_lock(hashtextextended(s.nspname || '/' || n.name, 0))
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace,
         unnest($1::text[]) WITH ORDINALITY AS n (name, place)
    WHERE c.oid = 'ruststream_messages'::regclass ORDER BY n.place";

/// Names.
pub(super) const UNLOCK: &str = "
    SELECT pg_advisory_unlock(hashtextextended(s.nspname || '/' || n.name, 0))
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace, unnest($1::text[]) AS n (name)
    WHERE c.oid = 'ruststream_messages'::regclass";

/// Name of an index.
pub(super) const HAS_INDEX: &str = "SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass($1)";

pub(super) const PING: &str = "SELECT 1";

-- The search index. Tables: sessions (`searched` in SQLite, `indexed` in PostgreSQL: how many rows of each are
-- indexed), messages; in SQLite search_rows (one per indexed row) and search_grams (an FTS5 index that keeps no text), in PostgreSQL search_spans (one per signature).

-- name: search_due
-- Sessions with rows that are not indexed yet.
SELECT id, owner, version, {{indexed}} AS indexed, message_count, updated_at FROM sessions
WHERE message_count > {{indexed}} AND owner IS NOT NULL
ORDER BY owner, id LIMIT :limit

-- name: search_texts
-- The texts of rows to index: what people may find again, so no commands, nothing undone and nothing hidden.
SELECT messages.session_id, messages.n, messages.text
FROM {{each}}(:sessions)
JOIN messages ON messages.session_id = value ->> 'id'
  AND messages.n > CAST(value ->> 'after' AS BIGINT) AND messages.n <= CAST(value ->> 'upto' AS BIGINT)
WHERE messages.active = 1 AND messages.role IN ('user', 'assistant')
  AND messages.data NOT LIKE '%"command":%' AND messages.data NOT LIKE '%"hidden":%'
ORDER BY messages.session_id, messages.n

-- name: search_last_spans
-- The last span of each of some sessions.
-- [postgres]
SELECT span.session_id, span.first_n, span.last_n, CAST(span.bits AS TEXT) AS bits
FROM jsonb_array_elements(:sessions)
CROSS JOIN LATERAL (
    SELECT session_id, first_n, last_n, bits FROM search_spans
    WHERE session_id = value ->> 'id' ORDER BY first_n DESC LIMIT 1) AS span

-- name: search_index_postgres
-- Write spans of some sessions and record how far each is indexed. Leaves out sessions that another indexer or a turn is
-- writing to, sessions that another indexer has indexed further, and those that moved on since their rows were read: somebody's
-- words may have been removed from them. A span that was there gets a new id: it is the newest now. Ids follow the order of the lists.
-- [postgres]
WITH claimed AS MATERIALIZED (
    SELECT sessions.id, sessions.owner, CAST(value ->> 'upto' AS BIGINT) AS upto
    FROM jsonb_array_elements(:sessions)
    JOIN sessions ON sessions.id = value ->> 'id' AND sessions.indexed = CAST(value ->> 'after' AS BIGINT)
      AND sessions.version = CAST(value ->> 'version' AS BIGINT)
    FOR NO KEY UPDATE OF sessions SKIP LOCKED),
written AS (
    INSERT INTO search_spans (session_id, owner, first_n, last_n, since_n, size_class, bits)
    SELECT claimed.id, claimed.owner, span.first_n, span.last_n, span.first_n, span.size_class, CAST(span.bits AS VARBIT)
    FROM unnest(CAST(:session_id AS TEXT[]), CAST(:first_n AS BIGINT[]), CAST(:last_n AS BIGINT[]),
                CAST(:size_class AS SMALLINT[]), CAST(:bits AS TEXT[]))
         WITH ORDINALITY AS span (id, first_n, last_n, size_class, bits, place)
    JOIN claimed ON claimed.id = span.id
    ORDER BY span.place
    ON CONFLICT (session_id, first_n) DO UPDATE
    SET id = excluded.id, last_n = excluded.last_n, size_class = excluded.size_class, bits = excluded.bits)
UPDATE sessions SET indexed = claimed.upto FROM claimed WHERE sessions.id = claimed.id

-- name: drop_older_rows
-- Delete some rows of the index that an older version made. An older worker finds nothing in it then. TRUNCATE would need a right
-- that a role which only changes rows does not have.
-- [postgres]
DELETE FROM search_rows WHERE id IN (SELECT id FROM search_rows ORDER BY id LIMIT :limit) RETURNING id

-- name: search_moved
-- Record how far a session is indexed, if no other indexer has moved that on and the session is as it was when its rows were read:
-- somebody's words may have been removed since.
-- [sqlite]
UPDATE sessions SET searched = :upto WHERE id = :session_id AND searched = :after AND version = :version

-- name: search_row
-- Number a row for the index, if the row is still there and its session is indexed so far. A second indexer of it fails here.
-- [sqlite]
INSERT INTO search_rows (session_id, n)
SELECT session_id, n FROM messages
WHERE session_id = :session_id AND n = :n
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND searched = :upto AND version = :version)

-- name: search_row_grams
-- Index the grams of a row that was numbered.
-- [sqlite]
INSERT INTO search_grams (rowid, grams)
SELECT id, :grams FROM search_rows
WHERE session_id = :session_id AND n = :n
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND searched = :upto AND version = :version)

-- name: search_tail
-- An owner's rows that are not indexed yet.
SELECT 0 AS place, sessions.id AS session_id, sessions.session_key, sessions.title, sessions.updated_at,
       messages.n, messages.role, messages.text, messages.created_at
FROM sessions JOIN messages ON messages.session_id = sessions.id AND messages.n > sessions.{{indexed}}
WHERE sessions.owner = :owner AND sessions.message_count > sessions.{{indexed}}
  AND messages.active = 1 AND messages.role IN ('user', 'assistant')
  AND messages.data NOT LIKE '%"command":%' AND messages.data NOT LIKE '%"hidden":%'
LIMIT :limit

-- name: search_tail_of_all
-- Everybody's rows that are not indexed yet, for an operator. CROSS JOIN: SQLite reads the few sessions first, and not all messages.
SELECT 0 AS place, sessions.id AS session_id, sessions.session_key, sessions.title, sessions.updated_at,
       messages.n, messages.role, messages.text, messages.created_at
FROM sessions CROSS JOIN messages
WHERE sessions.owner IS NOT NULL AND sessions.message_count > sessions.{{indexed}}
  AND messages.session_id = sessions.id AND messages.n > sessions.{{indexed}}
  AND messages.active = 1 AND messages.role IN ('user', 'assistant')
  AND messages.data NOT LIKE '%"command":%' AND messages.data NOT LIKE '%"hidden":%'
LIMIT :limit

-- The search index. Tables: sessions (`searched`: how many rows of each are indexed), messages, search_rows (one per indexed
-- row) and, in SQLite, search_grams (an FTS5 index that keeps no text).

-- name: search_due
-- Sessions with rows that are not indexed yet.
SELECT id, owner, searched, message_count FROM sessions
WHERE message_count > searched AND owner IS NOT NULL
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

-- name: search_index_postgres
-- Index rows of some sessions and record how far each is indexed. Leaves out sessions that another indexer or a turn is
-- writing to, and sessions that another indexer has indexed further.
-- [postgres]
WITH claimed AS MATERIALIZED (
    SELECT sessions.id, sessions.owner, CAST(value ->> 'upto' AS BIGINT) AS upto
    FROM jsonb_array_elements(:sessions)
    JOIN sessions ON sessions.id = value ->> 'id' AND sessions.searched = CAST(value ->> 'after' AS BIGINT)
    FOR NO KEY UPDATE OF sessions SKIP LOCKED),
added AS (
    INSERT INTO search_rows (session_id, n, owner, grams)
    SELECT claimed.id, found.n, claimed.owner, array_to_tsvector(string_to_array(found.grams, ' '))
    FROM unnest(CAST(:session_id AS TEXT[]), CAST(:n AS BIGINT[]), CAST(:grams AS TEXT[])) AS found (id, n, grams)
    JOIN claimed ON claimed.id = found.id)
UPDATE sessions SET searched = claimed.upto FROM claimed WHERE sessions.id = claimed.id

-- name: search_moved
-- Record how far a session is indexed, if no other indexer has moved that on.
-- [sqlite]
UPDATE sessions SET searched = :upto WHERE id = :session_id AND searched = :after

-- name: search_row
-- Number a row for the index, if its session is still there and indexed so far. A second indexer of it fails here.
-- [sqlite]
INSERT INTO search_rows (session_id, n)
SELECT :session_id, :n WHERE EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND searched = :upto)

-- name: search_row_grams
-- Index the grams of a row that was numbered.
-- [sqlite]
INSERT INTO search_grams (rowid, grams)
SELECT id, :grams FROM search_rows
WHERE session_id = :session_id AND n = :n
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND searched = :upto)

-- name: search_tail
-- An owner's rows that are not indexed yet.
SELECT 0 AS place, sessions.id AS session_id, sessions.session_key, sessions.title, sessions.updated_at,
       messages.n, messages.role, messages.text, messages.created_at
FROM sessions JOIN messages ON messages.session_id = sessions.id AND messages.n > sessions.searched
WHERE sessions.owner = :owner AND sessions.message_count > sessions.searched
  AND messages.active = 1 AND messages.role IN ('user', 'assistant')
  AND messages.data NOT LIKE '%"command":%' AND messages.data NOT LIKE '%"hidden":%'
LIMIT :limit

-- name: search_tail_of_all
-- Everybody's rows that are not indexed yet, for an operator.
SELECT 0 AS place, sessions.id AS session_id, sessions.session_key, sessions.title, sessions.updated_at,
       messages.n, messages.role, messages.text, messages.created_at
FROM sessions JOIN messages ON messages.session_id = sessions.id AND messages.n > sessions.searched
WHERE sessions.owner IS NOT NULL AND sessions.message_count > sessions.searched
  AND messages.active = 1 AND messages.role IN ('user', 'assistant')
  AND messages.data NOT LIKE '%"command":%' AND messages.data NOT LIKE '%"hidden":%'
LIMIT :limit

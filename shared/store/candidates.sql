-- Indexed rows that may contain the words. Tables: search_rows and search_grams (SQLite), search_spans (PostgreSQL), sessions,
-- messages. Nothing is written.

-- name: search_candidates
-- Rows that have all the grams, the last indexed first. Reading stops with the page, so a common word costs no more.
-- [sqlite]
SELECT search_rows.id AS place, sessions.id AS session_id, sessions.session_key, sessions.title, sessions.updated_at,
       messages.n, messages.role, messages.text, messages.created_at
FROM search_grams
CROSS JOIN search_rows ON search_rows.id = search_grams.rowid
CROSS JOIN sessions ON sessions.id = search_rows.session_id
CROSS JOIN messages ON messages.session_id = search_rows.session_id AND messages.n = search_rows.n
WHERE search_grams MATCH :query AND search_grams.rowid < :before
  AND sessions.owner = COALESCE(:owner, sessions.owner) AND messages.active = 1
ORDER BY search_grams.rowid DESC LIMIT :limit

-- name: spans_of_owner
-- An owner's spans that have all bits of the question in their signatures, the last changed first. Reading stops with the page.
-- [postgres]
SELECT id AS place, session_id, since_n, last_n FROM search_spans
WHERE owner = :owner AND id < :before
  AND (bits | (SELECT CAST(CAST(:masks AS TEXT[]) AS VARBIT[]))[size_class]) = bits
ORDER BY id DESC LIMIT :limit

-- name: spans_of_all
-- The same of everybody's spans, for an operator.
-- [postgres]
SELECT id AS place, session_id, since_n, last_n FROM search_spans
WHERE id < :before
  AND (bits | (SELECT CAST(CAST(:masks AS TEXT[]) AS VARBIT[]))[size_class]) = bits
ORDER BY id DESC LIMIT :limit

-- name: rows_of_spans
-- The rows of some spans, without what was undone or deleted since. `plain`: a word of the question in small ASCII letters; of texts
-- in ASCII only those are read that contain it. The LIMITs keep the planner from reading whole tables for a few rows.
-- [postgres]
SELECT session.id AS session_id, session.session_key, session.title, session.updated_at,
       message.n, message.role, message.text, message.created_at
FROM jsonb_array_elements(:spans)
CROSS JOIN LATERAL (
    SELECT * FROM sessions
    WHERE id = value ->> 'session_id' AND owner = COALESCE(CAST(:owner AS TEXT), owner) LIMIT 1) AS session
CROSS JOIN LATERAL (
    SELECT n, role, text, created_at FROM messages
    WHERE session_id = session.id
      AND n >= CAST(value ->> 'since_n' AS BIGINT) AND n <= CAST(value ->> 'last_n' AS BIGINT)
      AND active = 1 AND role IN ('user', 'assistant')
      AND (CAST(:plain AS TEXT) IS NULL OR octet_length(text) > length(text)
           OR strpos(lower(text COLLATE "C"), CAST(:plain AS TEXT)) > 0)
      AND data NOT LIKE '%"command":%' AND data NOT LIKE '%"hidden":%'
    ORDER BY n DESC LIMIT :rows) AS message
ORDER BY CAST(value ->> 'place' AS BIGINT) DESC, message.n DESC

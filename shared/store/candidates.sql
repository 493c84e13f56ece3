-- Indexed rows that may contain the words. Tables: search_rows, search_grams (SQLite), sessions, messages. Nothing is written.

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

-- name: search_newest_postgres
-- Of an owner's newest rows before a given one, those that have all the grams; `looked`: the oldest row looked at. The
-- LIMITs keep the planner from reading whole tables for a few rows. A row that is gone or undone by now comes empty.
-- [postgres]
WITH newest AS MATERIALIZED (
    SELECT id, session_id, n, grams FROM search_rows
    WHERE owner = :owner AND id < :before
    ORDER BY id DESC LIMIT :limit),
found AS MATERIALIZED (
    SELECT id, session_id, n FROM newest
    WHERE grams @@ CAST(:query AS TSQUERY)
    ORDER BY id DESC LIMIT :enough)
SELECT found.id AS place, (SELECT MIN(id) FROM newest) AS looked, session.id AS session_id, session.session_key,
       session.title, session.updated_at, message.n, message.role, message.text, message.created_at
FROM found
LEFT JOIN LATERAL (SELECT * FROM sessions WHERE id = found.session_id AND owner = :owner LIMIT 1) AS session ON true
LEFT JOIN LATERAL (
    SELECT * FROM messages WHERE session_id = found.session_id AND n = found.n AND active = 1 LIMIT 1) AS message ON true
ORDER BY found.id DESC

-- name: search_candidates_postgres
-- Rows that have all the grams, the last indexed first. `id + 0` makes PostgreSQL use the grams' index instead of walking
-- along the ids. A row that is gone or undone by now comes empty.
-- [postgres]
SELECT found.id AS place, session.id AS session_id, session.session_key, session.title, session.updated_at,
       message.n, message.role, message.text, message.created_at
FROM (SELECT id, session_id, n FROM search_rows
      WHERE grams @@ CAST(:query AS TSQUERY) AND id < :before
      ORDER BY id + 0 DESC LIMIT :limit) AS found
LEFT JOIN LATERAL (
    SELECT * FROM sessions
    WHERE id = found.session_id AND owner = COALESCE(CAST(:owner AS TEXT), owner) LIMIT 1) AS session ON true
LEFT JOIN LATERAL (
    SELECT * FROM messages WHERE session_id = found.session_id AND n = found.n AND active = 1 LIMIT 1) AS message ON true
ORDER BY found.id DESC

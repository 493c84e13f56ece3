-- PostgreSQL: of an owner's newest rows before a given one, those that have all the grams; `looked` is how far it looked.
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
FROM found  -- the LIMITs keep the planner from reading whole tables for a few rows; a row that is gone comes empty
LEFT JOIN LATERAL (SELECT * FROM sessions WHERE id = found.session_id AND owner = :owner LIMIT 1) AS session ON true
LEFT JOIN LATERAL (
    SELECT * FROM messages WHERE session_id = found.session_id AND n = found.n AND active = 1 LIMIT 1) AS message ON true
ORDER BY found.id DESC

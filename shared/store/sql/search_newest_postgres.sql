-- PostgreSQL: of an owner's newest rows before a given one, those that have all the grams. `place` is how far it looked.
WITH newest AS MATERIALIZED (
    SELECT id, session_id, n, grams FROM search_rows
    WHERE owner = :owner AND id < :before
    ORDER BY id DESC LIMIT :limit)
SELECT (SELECT MIN(id) FROM newest) AS place, session.id AS session_id, session.session_key, session.title,
       session.updated_at, message.n, message.role, message.text, message.created_at
FROM newest,  -- the LIMITs keep the planner from reading whole tables for a few rows
LATERAL (SELECT * FROM sessions WHERE id = newest.session_id AND owner = :owner LIMIT 1) AS session,
LATERAL (SELECT * FROM messages WHERE session_id = newest.session_id AND n = newest.n AND active = 1 LIMIT 1) AS message
WHERE newest.grams @@ CAST(:query AS TSQUERY)
ORDER BY newest.id DESC

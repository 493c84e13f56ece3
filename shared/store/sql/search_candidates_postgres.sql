-- PostgreSQL: rows that have all the grams, the last indexed first. A row that is gone or undone by now comes empty.
SELECT found.id AS place, session.id AS session_id, session.session_key, session.title, session.updated_at,
       message.n, message.role, message.text, message.created_at
FROM (SELECT id, session_id, n FROM search_rows
      WHERE grams @@ CAST(:query AS TSQUERY) AND id < :before
      ORDER BY id + 0 DESC LIMIT :limit) AS found  -- by the grams' index, never by walking along the ids
LEFT JOIN LATERAL (
    SELECT * FROM sessions
    WHERE id = found.session_id AND owner = COALESCE(CAST(:owner AS TEXT), owner) LIMIT 1) AS session ON true
LEFT JOIN LATERAL (
    SELECT * FROM messages WHERE session_id = found.session_id AND n = found.n AND active = 1 LIMIT 1) AS message ON true
ORDER BY found.id DESC

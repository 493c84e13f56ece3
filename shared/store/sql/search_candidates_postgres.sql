-- PostgreSQL: rows that have all the grams, the last indexed first. A row that is gone or undone by now comes empty.
SELECT found.id AS place, sessions.id AS session_id, sessions.session_key, sessions.title, sessions.updated_at,
       messages.n, messages.role, messages.text, messages.created_at
FROM (SELECT id, session_id, n FROM search_rows
      WHERE grams @@ CAST(:query AS TSQUERY) AND id < :before
      ORDER BY id DESC LIMIT :limit) AS found
LEFT JOIN sessions ON sessions.id = found.session_id AND sessions.owner = COALESCE(CAST(:owner AS TEXT), sessions.owner)
LEFT JOIN messages ON messages.session_id = found.session_id AND messages.n = found.n AND messages.active = 1
ORDER BY found.id DESC

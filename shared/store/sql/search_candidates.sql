-- SQLite: rows that have all the grams, the last indexed first. Reading stops with the page, so a common word costs no more.
SELECT search_rows.id AS place, sessions.id AS session_id, sessions.session_key, sessions.title, sessions.updated_at,
       messages.n, messages.role, messages.text, messages.created_at
FROM search_grams
CROSS JOIN search_rows ON search_rows.id = search_grams.rowid
CROSS JOIN sessions ON sessions.id = search_rows.session_id
CROSS JOIN messages ON messages.session_id = search_rows.session_id AND messages.n = search_rows.n
WHERE search_grams MATCH :query AND search_grams.rowid < :before
  AND sessions.owner = COALESCE(:owner, sessions.owner) AND messages.active = 1
ORDER BY search_grams.rowid DESC LIMIT :limit

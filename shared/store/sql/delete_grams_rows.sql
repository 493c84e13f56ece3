-- The indexed rows of a session with what they were indexed by.
SELECT search_rows.id AS place, search_rows.session_id, messages.text, sessions.owner
FROM search_rows
JOIN sessions ON sessions.id = search_rows.session_id
JOIN messages ON messages.session_id = search_rows.session_id AND messages.n = search_rows.n
WHERE search_rows.session_id = :session_id

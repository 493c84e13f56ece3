-- The session a key talks to, as far as it exists.
SELECT routes.session_id, routes.done_seq, sessions.version, sessions.message_count, sessions.updated_at, sessions.owner
FROM routes LEFT JOIN sessions ON sessions.id = routes.session_id
WHERE routes.session_key = :session_key

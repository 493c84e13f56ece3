-- The session a key talks to, as a commit needs it: no transcript, no facts.
SELECT routes.session_id, routes.done_seq, COALESCE(sessions.version, 0) AS version,
       COALESCE(sessions.message_count, 0) AS message_count, COALESCE(sessions.updated_at, 0) AS updated_at, sessions.owner
FROM routes LEFT JOIN sessions ON sessions.id = routes.session_id
WHERE routes.session_key = :session_key

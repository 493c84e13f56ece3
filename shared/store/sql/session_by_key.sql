-- The session that a key talks to.
SELECT sessions.id, sessions.session_key, version, message_count, sessions.created_at, updated_at, title, parent_id,
       ended_at, end_reason
FROM routes JOIN sessions ON sessions.id = routes.session_id WHERE routes.session_key = :session_key

-- One session.
SELECT id, session_key, version, message_count, created_at, updated_at FROM sessions WHERE id = :session_id

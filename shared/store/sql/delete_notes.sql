-- What was noted of a session that is no more.
DELETE FROM notes WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- A session that is no more is not looked at for what is worth keeping.
DELETE FROM flushes WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

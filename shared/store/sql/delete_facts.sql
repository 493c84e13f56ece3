-- What was known of a session that is no more.
DELETE FROM facts WHERE scope = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

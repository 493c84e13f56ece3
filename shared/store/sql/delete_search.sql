-- Forget what a deleted session was found by.
DELETE FROM search_rows WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

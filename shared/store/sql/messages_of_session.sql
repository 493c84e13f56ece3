-- The end of a transcript, newest first.
SELECT n, role, text, data, turn_id, inbound_id, active, created_at FROM messages
WHERE session_id = :session_id ORDER BY n DESC LIMIT :limit

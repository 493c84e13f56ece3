-- The end of a session's rows that nobody looked at, newest first.
SELECT role, text, data, inbound_id FROM messages
WHERE session_id = :session_id AND active = 1 AND n > :after ORDER BY n DESC LIMIT :limit

-- A transcript from a given row on, oldest first, a page at a time.
SELECT n, role, text, data, inbound_id, active, created_at FROM messages
WHERE session_id = :session_id AND n > :after ORDER BY n LIMIT :limit

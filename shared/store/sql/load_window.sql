-- The end of a key's transcript before a given row, newest first: by index, whatever its length.
SELECT role, text, data, inbound_id FROM messages
WHERE session_id = (SELECT session_id FROM routes WHERE session_key = :session_key) AND active = 1 AND n < :before
ORDER BY n DESC LIMIT :limit

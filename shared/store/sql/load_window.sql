-- The end of a key's transcript, newest first: by index, whatever its length.
SELECT role, text, data, inbound_id FROM messages
WHERE session_id = (SELECT session_id FROM routes WHERE session_key = :session_key) AND active = 1
ORDER BY n DESC LIMIT :limit

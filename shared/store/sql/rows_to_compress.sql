-- The rows of a conversation after a given one, oldest first: what a summary has not got yet.
SELECT n, role, text, data, inbound_id FROM messages
WHERE session_id = :session_id AND active = 1 AND n > :after AND n <= :until
ORDER BY n LIMIT :limit

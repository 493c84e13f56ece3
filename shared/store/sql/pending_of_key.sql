-- The waiting inbounds of a key, in order.
SELECT id, seq, payload, attempts FROM inbox
WHERE session_key = :session_key AND state = 'pending' AND seq > :after
ORDER BY seq LIMIT :limit

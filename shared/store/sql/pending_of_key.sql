-- The waiting inbounds of a key, in order.
SELECT id, seq, payload, attempts, {{now_ms}} - outage_since AS outage_ms FROM inbox
WHERE session_key = :session_key AND state = 'pending' AND seq > :after
ORDER BY seq LIMIT :limit

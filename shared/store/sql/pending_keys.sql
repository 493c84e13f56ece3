-- Keys with mail that has waited for a while, from a given key on.
SELECT session_key, MIN(received_at) AS oldest FROM inbox
WHERE state = 'pending' AND session_key > :after AND received_at <= :before
GROUP BY session_key ORDER BY session_key LIMIT :limit

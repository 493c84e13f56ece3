-- The parts that a destination still waits for, in order, and how long ago an attempt began that came to no end.
SELECT id, idempotency_key, session_key, payload, state, attempts, waits,
       CASE WHEN state = 'sending' THEN {{now_ms}} - sending_at END AS sending_ms
FROM outbox
WHERE destination = :destination AND state IN ('pending', 'sending')
ORDER BY id LIMIT :limit

-- The parts that a destination still waits for, in order.
SELECT id, idempotency_key, session_key, payload, state, attempts FROM outbox
WHERE destination = :destination AND state IN ('pending', 'sending')
ORDER BY id LIMIT :limit

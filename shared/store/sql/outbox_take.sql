-- Say, before the call, that the first part which a destination waits for is about to be sent; not one whose last attempt came to no end.
UPDATE outbox SET state = 'sending', attempts = attempts + 1, sending_at = :now
WHERE state = 'pending' AND id = (
    SELECT id FROM outbox
    WHERE destination = :destination AND state IN ('pending', 'sending')
    ORDER BY id LIMIT 1
)
RETURNING id, idempotency_key, session_key, payload, 'pending' AS state, attempts - 1 AS attempts

-- Say, before the call, that the first part which a destination waits for is about to be sent. Not one whose last attempt came to no end,
-- unless it is our own: then it was marked by an earlier call whose answer was lost, and is not counted again.
UPDATE outbox
SET state = 'sending', attempts = attempts + CASE WHEN state = 'pending' THEN 1 ELSE 0 END, sending_at = {{now_ms}}, taken_by = :lease
WHERE (state = 'pending' OR taken_by = :lease) AND id = (
    SELECT id FROM outbox
    WHERE destination = :destination AND state IN ('pending', 'sending')
    ORDER BY id LIMIT 1
)
RETURNING id, idempotency_key, session_key, payload, 'pending' AS state, attempts - 1 AS attempts, waits

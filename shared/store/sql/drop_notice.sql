-- Tell the chat of a message that was just dropped.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT :idempotency_key, :turn_id, :ordinal, :conversation, :destination, :platform, :payload, 'pending', :now
FROM inbox WHERE id = :id AND turn_id = :turn_id
RETURNING id

-- Tell a chat that a message of it was set aside, unless that happened not long ago, or to the same message before.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT :idempotency_key, :turn_id, :ordinal, :conversation, :destination, :platform, :payload, 'pending', :now
WHERE NOT EXISTS (
    SELECT 1 FROM dead
    WHERE session_key = :session_key AND created_at > :since AND kind = 'inbound' AND reason = :reason)
ON CONFLICT (turn_id, ordinal) DO NOTHING
RETURNING id

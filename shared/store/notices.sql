-- Notices to a chat whose message waits. Table: outbox.

-- name: notice_waiting
-- Add the notice of a message that waits. Returns nothing if the message has ended, or has its notice already.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT :idempotency_key, :turn_id, :ordinal, :conversation, :destination, :platform, :payload, 'pending', :now
WHERE EXISTS (SELECT 1 FROM inbox WHERE id = :id AND session_key = :session_key AND state = 'pending')
ON CONFLICT (turn_id, ordinal) DO NOTHING
RETURNING id

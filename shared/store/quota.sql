-- Messages over a quota. Tables: inbox (they are recorded as rejected, without a place in their key's line), known_messages
-- (read), outbox (what their chat is told).

-- name: quota_reject
-- Record a message that was not let in. Returns nothing if it was accepted or recorded before.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, reason, received_at, finished_at)
SELECT :id, :event_id, :platform, :session_key, 0, :payload, 'rejected', :reason, CAST(:now AS BIGINT), {{now_ms}}
WHERE NOT EXISTS (SELECT 1 FROM known_messages WHERE digest = message_digest(:id))
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: quota_notice
-- Tell the chat of a message that was recorded as rejected for this reason.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT :idempotency_key, :turn_id, :ordinal, :conversation, :destination, :platform, :payload, 'pending', :now
WHERE EXISTS (SELECT 1 FROM inbox WHERE id = :id AND session_key = :session_key AND reason = :reason)
ON CONFLICT (turn_id, ordinal) DO NOTHING
RETURNING id

-- Drafts: messages that show an answer while it is written. Tables: inbox is read; outbox (a draft is a part of its own, so it is sent in order
-- with everything else in its chat, and its receipt is kept).

-- name: draft_open
-- Add the draft of a message that waits for its answer. Returns nothing if the message has ended, or has its draft already.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT :idempotency_key, :turn_id, :ordinal, :conversation, :destination, :platform, :payload, 'pending', :now
WHERE EXISTS (SELECT 1 FROM inbox WHERE id = :id AND session_key = :session_key AND state = 'pending')
ON CONFLICT (turn_id, ordinal) DO NOTHING
RETURNING id

-- name: draft_wanted
-- Whether a draft still shows an answer that is being written.
SELECT 1 AS yes FROM inbox WHERE id = :id AND state = 'pending'

-- name: draft_of
-- What became of a draft.
SELECT state, receipt FROM outbox WHERE turn_id = :turn_id AND ordinal = 1

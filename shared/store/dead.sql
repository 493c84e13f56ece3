-- Dead letters. Table: dead (`once` tells what was set aside before; state: open, replaying, replayed, dropped).

-- name: set_aside
-- Record something that could not be understood, delivered or taken in. Returns nothing if it was recorded before.
INSERT INTO dead (kind, ref, session_key, reason, detail, payload, attempts, state, created_at, once)
VALUES (:kind, :ref, :session_key, :reason, :detail, :payload, :attempts, 'open', :now, :once)
ON CONFLICT (once) DO NOTHING
RETURNING id

-- name: refuse_notice
-- Tell a chat that a message was set aside, unless the chat was told since a given time or of this very message.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT :idempotency_key, :turn_id, :ordinal, :conversation, :destination, :platform, :payload, 'pending', :now
WHERE NOT EXISTS (
    SELECT 1 FROM dead
    WHERE session_key = :session_key AND created_at > :since AND kind = 'inbound' AND reason = :reason)
ON CONFLICT (turn_id, ordinal) DO NOTHING
RETURNING id

-- name: dead_list
-- The dead letters in one state, newest first, without their payloads.
SELECT id, kind, ref, session_key, reason, detail, attempts, state, created_at FROM dead
WHERE state = :state ORDER BY id DESC LIMIT :limit

-- name: dead_matching
-- How many open dead letters match, of how many conversations, and the number of the newest. A value that is absent matches all.
SELECT COUNT(*) AS letters, COUNT(DISTINCT session_key) AS conversations, MAX(id) AS newest FROM dead
WHERE state = 'open' AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
  AND (CAST(:reason AS TEXT) IS NULL OR reason = :reason)
  AND (CAST(:session_key AS TEXT) IS NULL OR session_key = :session_key)

-- name: dead_next
-- The next of these letters behind a given one, up to another, oldest first.
SELECT id FROM dead
WHERE state = 'open' AND id > :after AND id <= :newest AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
  AND (CAST(:reason AS TEXT) IS NULL OR reason = :reason)
  AND (CAST(:session_key AS TEXT) IS NULL OR session_key = :session_key)
ORDER BY id LIMIT :limit

-- name: dead_by_id
-- One dead letter, whole.
SELECT id, kind, ref, session_key, reason, detail, payload, attempts, state, created_at FROM dead WHERE id = :id

-- name: dead_close
-- Close an open dead letter. Returns nothing if it was closed before.
UPDATE dead SET state = :state WHERE id = :id AND state = 'open' RETURNING id

-- name: dead_move
-- Move a dead letter from one state to another. Returns nothing if it is not in the first.
UPDATE dead SET state = :after WHERE id = :id AND state = :before RETURNING id

-- name: outbox_again
-- Let a buried part wait again, from its first attempt on, if its dead letter is in `replaying`.
UPDATE outbox SET state = 'pending', attempts = 0, waits = 0, reason = NULL
WHERE id = :id AND state = 'buried' AND EXISTS (SELECT 1 FROM dead WHERE id = :dead_id AND state = 'replaying')
RETURNING destination

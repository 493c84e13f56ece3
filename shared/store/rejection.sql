-- Ending one message that waits behind others, without a turn. Tables: inbox, outbox; known_messages is read.

-- name: drop_waiting
-- End a journaled message that waits, if another of its key comes before it: so no turn can be running it.
UPDATE inbox SET state = 'rejected', reason = :reason, turn_id = :turn_id, finished_at = :now
WHERE id = :id AND session_key = :session_key AND state = 'pending' AND EXISTS (
    SELECT 1 FROM inbox AS earlier
    WHERE earlier.session_key = :session_key AND earlier.state = 'pending' AND earlier.seq < inbox.seq)
RETURNING id

-- name: drop_unjournaled
-- Record a message that only Redis knew, already rejected. Fails as AlreadyDone if a turn ended it before; writes nothing if
-- that was so long ago that retention has moved it.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, reason, attempts, turn_id, received_at, finished_at)
SELECT :id, :event_id, :platform, :session_key, CAST(:seq AS BIGINT), :payload, :state, :reason, CAST(:attempts AS INTEGER), :turn_id,
       CAST(:received_at AS BIGINT), CAST(:now AS BIGINT)
WHERE NOT EXISTS (SELECT 1 FROM known_messages WHERE digest = message_digest(:id))
RETURNING id

-- name: drop_notice
-- Tell the chat of a message that was rejected just now.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT :idempotency_key, :turn_id, :ordinal, :conversation, :destination, :platform, :payload, 'pending', :now
FROM inbox WHERE id = :id AND turn_id = :turn_id
RETURNING id

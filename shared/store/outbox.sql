-- The outbox. Table: outbox (one row per part of a reply, numbered in the order of sending). Burying adds to table dead. Table
-- closed_chats is read.

-- name: outbox_of
-- The parts that a destination still waits for, in order; for a part in `sending`, how long ago its attempt began. `closed` says
-- why the chat takes nothing from us, if it does not.
SELECT id, idempotency_key, session_key, payload, state, attempts, waits, created_at,
       CASE WHEN state = 'sending' THEN {{now_ms}} - sending_at END AS sending_ms,
       (SELECT closed_chats.reason FROM closed_chats WHERE closed_chats.destination = :destination) AS closed
FROM outbox
WHERE destination = :destination AND state IN ('pending', 'sending')
ORDER BY id LIMIT :limit

-- name: outbox_take
-- Mark the first part that a destination waits for as `sending`, before it is sent. Leaves a part alone that is in `sending`
-- already, unless this very lease marked it: then an earlier call was not answered, and the attempt is not counted again.
-- `closed` says why the chat takes nothing from us, if it does not.
UPDATE outbox
SET state = 'sending', attempts = attempts + CASE WHEN state = 'pending' THEN 1 ELSE 0 END, sending_at = {{now_ms}},
    taken_by = :lease
WHERE (state = 'pending' OR taken_by = :lease) AND id = (
    SELECT id FROM outbox
    WHERE destination = :destination AND state IN ('pending', 'sending')
    ORDER BY id LIMIT 1
)
RETURNING id, idempotency_key, session_key, payload, 'pending' AS state, attempts - 1 AS attempts, waits, created_at,
          (SELECT closed_chats.reason FROM closed_chats WHERE closed_chats.destination = :destination) AS closed

-- name: outbox_sending
-- Mark a given part as `sending`, before it is sent. Of several attempts one succeeds; the same lease may repeat it.
UPDATE outbox SET state = 'sending', attempts = :attempts + 1, sending_at = {{now_ms}}, taken_by = :lease
WHERE id = :id AND state IN ('pending', 'sending')
  AND (attempts = :attempts OR (attempts = :attempts + 1 AND taken_by = :lease))
RETURNING id

-- name: outbox_sent
-- The platform has the part.
UPDATE outbox SET state = 'sent', receipt = :receipt, sent_at = {{now_ms}}, reason = NULL WHERE id = :id

-- name: outbox_sent_as
-- What a part was sent as, by its number.
SELECT idempotency_key, destination, receipt FROM outbox WHERE id = :id

-- name: outbox_failed
-- An attempt failed and the part waits again. Changes nothing when repeated, or when another attempt began since.
UPDATE outbox SET state = 'pending', reason = :reason, waits = waits + :waits
WHERE id = :id AND state = 'sending' AND attempts = :attempt

-- name: outbox_ambiguous
-- Nobody knows whether an earlier attempt arrived.
UPDATE outbox SET ambiguous = 1 WHERE id = :id

-- name: bury_part
-- Give up on a part.
UPDATE outbox SET state = 'buried', reason = :reason WHERE id = :id AND state IN ('pending', 'sending')
RETURNING id
-- gives: buried
-- A part that was buried just now has no open dead letter yet.
(SELECT id FROM outbox
 WHERE id = :id AND state = 'buried'
   AND NOT EXISTS (SELECT 1 FROM dead WHERE kind = 'reply' AND ref = :ref AND state = 'open')) AS buried

-- name: bury_part_letter
-- Write the dead letter of a part that was buried just now.
INSERT INTO dead (kind, ref, session_key, reason, detail, payload, attempts, state, created_at)
SELECT 'reply', :ref, :session_key, :reason, :detail, :payload, :attempts, 'open', :now
FROM {{buried}}

-- name: outbox_destinations
-- Destinations that parts wait for, in order, from a given one on, each with its first part.
SELECT destination, MIN(id) AS first FROM outbox
WHERE state IN ('pending', 'sending') AND destination > :after
GROUP BY destination ORDER BY destination LIMIT :limit

-- name: outbox_of_turn
-- The parts of a turn and what became of each.
SELECT id, ordinal, destination, state, attempts, ambiguous, receipt, reason, created_at, sending_at, sent_at, payload
FROM outbox WHERE turn_id = :turn_id ORDER BY ordinal

-- name: outbox_of_session
-- The parts of one session after a given one, in order.
-- [sqlite]
SELECT id, turn_id, ordinal, payload FROM outbox WHERE session_key = :session_key AND id > :after ORDER BY id LIMIT :limit

-- name: outbox_of_session_postgres
-- The parts of one session after a given one and up to another, in order; `settled`: no transaction was open meanwhile.
-- [postgres]
SELECT id, turn_id, ordinal, payload,
       pg_snapshot_xmin(pg_current_snapshot()) = pg_snapshot_xmax(pg_current_snapshot()) AS settled
FROM outbox WHERE session_key = :session_key AND id > :after AND id <= :until ORDER BY id LIMIT :limit

-- name: outbox_writers_postgres
-- The transactions that write to the outbox now. A writer locks the table before it numbers a row and until after its commit
-- is visible.
-- [postgres]
SELECT virtualtransaction AS writer FROM pg_locks
WHERE locktype = 'relation' AND relation = 'outbox'::regclass AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())

-- name: outbox_drop
-- An operator gives up what a destination waits for, all of it or one part. A part that is being sent is left alone.
UPDATE outbox SET state = 'buried', reason = 'dropped'
WHERE destination = :destination AND state = 'pending' AND (:part = 0 OR id = :part)
RETURNING id

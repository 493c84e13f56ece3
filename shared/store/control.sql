-- Ending one control message by itself. Tables: inbox, routes, outbox, dead, facts. No session is read or written. The first statement
-- ends the message if it still waits; each of the others writes only if that succeeded.

-- name: end_control
-- The compare-and-set: end a journaled message that still waits.
UPDATE inbox SET state = :state, reason = :reason, attempts = :attempts, turn_id = :turn_id, finished_at = :now
WHERE id = :id AND session_key = :session_key AND state = 'pending'
RETURNING id
-- gives: ended
(SELECT id FROM inbox WHERE id = :id AND turn_id = :turn_id) AS ended

-- name: end_unjournaled_control
-- Record a message that only Redis knew, already ended. Fails as AlreadyDone if the journal has it; writes nothing if
-- retention has moved it.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, reason, attempts, turn_id, received_at, finished_at)
SELECT :id, :event_id, :platform, :session_key, CAST(:seq AS BIGINT), :payload, :state, :reason, CAST(:attempts AS INTEGER), :turn_id,
       CAST(:received_at AS BIGINT), CAST(:now AS BIGINT)
WHERE NOT EXISTS (SELECT 1 FROM known_messages WHERE digest = message_digest(:id))
RETURNING id
-- gives: ended
(SELECT id FROM inbox WHERE id = :id AND turn_id = :turn_id) AS ended

-- name: control_route
-- Record how far the key has come, so that it has room for further messages.
UPDATE routes SET done_seq = :seq FROM {{ended}} WHERE routes.session_key = :session_key AND routes.done_seq < :seq

-- name: control_dead
-- Set the message aside.
INSERT INTO dead (kind, ref, session_key, reason, detail, payload, attempts, state, created_at)
SELECT 'inbound', ended.id, :session_key, :reason, :detail, :payload, :attempts, 'open', :now FROM {{ended}}

-- name: control_fact
-- Remember a fact that the message sets.
INSERT INTO facts (scope, name, value)
SELECT :scope, :name, :value FROM {{ended}} WHERE true
ON CONFLICT (scope, name) DO UPDATE SET value = excluded.value

-- name: control_no_fact
-- Forget a fact.
DELETE FROM facts WHERE scope = :scope AND name = :name AND EXISTS (SELECT 1 FROM {{ended}})

-- name: control_outbox
-- Add the parts of the answer, numbered in their order.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT value ->> 'idempotency_key', value ->> 'turn_id', CAST(value ->> 'ordinal' AS INTEGER), value ->> 'conversation',
       value ->> 'destination', value ->> 'platform', value ->> 'payload', 'pending', CAST(value ->> 'now' AS BIGINT)
FROM {{each}}(:outbox) JOIN {{ended}} ON true
ORDER BY CAST(value ->> 'ordinal' AS INTEGER)
RETURNING id

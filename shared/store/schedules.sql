-- Schedules. Tables: schedules, schedule_fires (one row per slot that has come), routes and inbox (a slot that fires is journaled
-- by the transaction that moves its schedule on).

-- name: add_schedule
-- Add a schedule, unless its owner has as many as they may have.
INSERT INTO schedules (id, name, owner, agent, rule, text, targets, origin, missed, overlap, window_ms, state, due_at, look_at,
                       claim, created_at)
SELECT :id, :name, :owner, :agent, :rule, :text, :targets, CAST(:origin AS TEXT), :missed, :overlap,
       CAST(:window_ms AS BIGINT), 'active', CAST(:due_at AS BIGINT), CAST(:due_at AS BIGINT), '', CAST(:now AS BIGINT)
WHERE (SELECT COUNT(*) FROM schedules WHERE owner = :owner AND state <> 'ended') < :most
RETURNING id

-- name: schedule_by_id
-- One schedule.
SELECT id, name, owner, agent, rule, text, targets, origin, missed, overlap, window_ms, state, reason, due_at, late_since,
       created_at
FROM schedules WHERE id = :id

-- name: schedules_listed
-- All schedules, or those of one owner, oldest first.
SELECT id, name, owner, agent, rule, text, targets, origin, missed, overlap, window_ms, state, reason, due_at, late_since,
       created_at
FROM schedules WHERE owner = COALESCE(CAST(:owner AS TEXT), owner)
ORDER BY created_at, id LIMIT :limit

-- name: schedules_page
-- All schedules, or those in one state, oldest first, after a given place.
SELECT id, name, owner, agent, rule, text, targets, origin, missed, overlap, window_ms, state, reason, due_at, late_since,
       created_at
FROM schedules WHERE (created_at, id) > (:after_at, :after_id) AND state = COALESCE(CAST(:state AS TEXT), state)
ORDER BY created_at, id LIMIT :limit

-- name: schedules_due
-- The schedules that a housekeeper has to look at, the longest due first.
SELECT id, name, owner, agent, rule, text, targets, origin, missed, overlap, window_ms, state, reason, due_at, late_since,
       created_at
FROM schedules WHERE state = 'active' AND look_at <= :now
ORDER BY look_at LIMIT :limit

-- name: schedules_next
-- When the next schedule is to be looked at.
SELECT MIN(look_at) AS look_at FROM schedules WHERE state = 'active'

-- name: put_off_schedule
-- Let the late slots of a schedule wait, if nobody moved it on meanwhile.
UPDATE schedules SET look_at = :look_at, late_since = :late_since
WHERE id = :schedule_id AND due_at = :due_at AND state = 'active' AND late_since IS NULL

-- name: claim_schedule
-- The compare-and-set: move a schedule on to its next slot, if it is still at the slot that was seen. Without one it has ended.
UPDATE schedules
SET due_at = CAST(:next_at AS BIGINT), look_at = COALESCE(CAST(:next_at AS BIGINT), look_at), claim = :claim,
    late_since = CASE WHEN CAST(:next_at AS BIGINT) <= late_since THEN late_since END,
    state = CASE WHEN CAST(:next_at AS BIGINT) IS NULL THEN 'ended' ELSE state END
WHERE id = :schedule_id AND due_at = :due_at AND state = 'active'
RETURNING id
-- gives: claimed
(SELECT id FROM schedules WHERE id = :schedule_id AND claim = :claim) AS claimed

-- name: sign_schedule
-- Sign a schedule for a run by hand, which moves nothing on.
UPDATE schedules SET claim = :claim WHERE id = :schedule_id
RETURNING id
-- gives: claimed
(SELECT id FROM schedules WHERE id = :schedule_id AND claim = :claim) AS claimed

-- name: add_fires
-- Record what became of slots, if the schedule was claimed.
INSERT INTO schedule_fires (schedule_id, slot, manual, state, reason, inbound_id, created_at)
SELECT claimed.id, CAST(value ->> 'slot' AS BIGINT), CAST(value ->> 'manual' AS INTEGER), value ->> 'state',
       value ->> 'reason', value ->> 'inbound_id', CAST(:now AS BIGINT)
FROM {{each}}(:fires) JOIN {{claimed}} ON true

-- name: fire_route
-- Give the slot's key its next number, if the schedule was claimed.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT :session_key, :session_id, 1, 0, CAST(:now AS BIGINT) FROM {{claimed}} WHERE true
ON CONFLICT (session_key) DO UPDATE SET last_seq = routes.last_seq + 1
RETURNING last_seq
-- gives: fire_number
(SELECT last_seq FROM routes WHERE session_key = :session_key) AS fire_number

-- name: fire_inbox
-- Journal the slot's inbound under that number, if the schedule was claimed.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, received_at)
SELECT :id, :event_id, :platform, :session_key, fire_number.last_seq, :payload, 'pending', CAST(:now AS BIGINT)
FROM {{fire_number}} JOIN {{claimed}} ON true
RETURNING seq

-- name: waiting_fires
-- How many messages of a key have not ended.
SELECT COUNT(*) AS waiting FROM inbox WHERE session_key = :session_key AND state = 'pending'

-- name: last_fires
-- What became of the newest slots of a schedule and of their turns.
SELECT fires.slot, fires.manual, fires.state, fires.reason, fires.inbound_id, fires.created_at,
       CASE WHEN known.digest IS NULL THEN inbox.state ELSE COALESCE(known.state, 'answered') END AS turn,
       COALESCE(inbox.reason, known.reason) AS turn_reason
FROM schedule_fires AS fires LEFT JOIN inbox ON inbox.id = fires.inbound_id
LEFT JOIN known_messages AS known ON known.digest = message_digest(fires.inbound_id)
WHERE fires.schedule_id = :schedule_id
ORDER BY fires.slot DESC, fires.manual LIMIT :limit

-- name: last_ended
-- How the newest runs of a schedule ended since it was resumed, the newest first. Slots that did not run are left out.
SELECT CASE WHEN known.digest IS NULL THEN inbox.state ELSE COALESCE(known.state, 'answered') END AS state
FROM schedule_fires AS fires LEFT JOIN inbox ON inbox.id = fires.inbound_id
LEFT JOIN known_messages AS known ON known.digest = message_digest(fires.inbound_id)
WHERE (inbox.id IS NOT NULL OR known.digest IS NOT NULL)
  AND fires.schedule_id = :schedule_id AND fires.state = 'fired'
  AND fires.created_at > (SELECT resumed_at FROM schedules WHERE schedules.id = :schedule_id)
ORDER BY fires.slot DESC LIMIT :limit

-- name: pause_schedule
-- Pause a schedule that is active.
UPDATE schedules SET state = 'paused', reason = CAST(:reason AS TEXT) WHERE id = :id AND state = 'active'
RETURNING id

-- name: resume_schedule
-- Let a paused schedule go on with a later slot: those that came meanwhile were not wanted.
UPDATE schedules SET state = 'active', reason = NULL, due_at = :due_at, look_at = :due_at, late_since = NULL, resumed_at = :now
WHERE id = :id AND state = 'paused'
RETURNING id

-- name: old_fires
-- Some slots that came before a time, but the newest of each schedule.
SELECT old.schedule_id, old.slot, old.manual, schedules.agent, schedules.overlap
FROM schedule_fires AS old LEFT JOIN schedules ON schedules.id = old.schedule_id
WHERE old.created_at < :before AND EXISTS (
    SELECT 1 FROM schedule_fires AS newer
    WHERE newer.schedule_id = old.schedule_id AND newer.slot > old.slot LIMIT 1 OFFSET :others)
ORDER BY old.created_at LIMIT :limit

-- name: prune_fires
-- Forget some slots.
DELETE FROM schedule_fires WHERE (schedule_id, slot, manual) IN (
    SELECT value ->> 'schedule_id', CAST(value ->> 'slot' AS BIGINT), CAST(value ->> 'manual' AS INTEGER) FROM {{each}}(:rows))

-- name: fires_of
-- All slots of a schedule, with what says in which conversations they ran.
SELECT schedules.id AS schedule_id, schedules.agent, schedules.overlap, fires.slot
FROM schedules LEFT JOIN schedule_fires AS fires ON fires.schedule_id = schedules.id
WHERE schedules.id = :id

-- name: schedules_ended
-- Schedules whose last slot came before a time.
SELECT id FROM schedules WHERE state = 'ended' AND look_at < :before ORDER BY look_at LIMIT :limit

-- name: remove_schedule
-- Forget a schedule.
DELETE FROM schedules WHERE id = :id
RETURNING id

-- name: remove_fires
-- Forget its slots. Turns that are in the journal stay there.
DELETE FROM schedule_fires WHERE schedule_id = :id

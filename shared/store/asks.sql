-- Questions to people. Tables: asks, runs, facts. What a commit writes of them it writes only if it won its session: `ours` is given by
-- batch.sql.

-- name: commit_parked_run
-- Let a run wait for a person, with its steps, whose cost is counted by the same commit. Whoever held it is refused from now on.
INSERT INTO runs (id, session_id, session_key, inbound_id, holder, state, counted, created_at)
SELECT :run, :session_id, :session_key, :inbound_id, '', 'parked', :counted, :now
FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id
ON CONFLICT (id) DO UPDATE SET state = 'parked', holder = '', counted = excluded.counted

-- name: commit_ended_asks
-- End the questions of a run that are still open.
UPDATE asks SET state = :state, ended_at = :now
WHERE run_id = :run AND state = 'open'
  AND EXISTS (SELECT 1 FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id)

-- name: commit_asks
-- Add the questions with which a turn ends.
INSERT INTO asks (id, run_id, session_key, session_id, name, text, choices, is_approval, source, state, answer, expires_at, created_at)
SELECT value ->> 'id', :run, :session_key, :session_id, value ->> 'name', value ->> 'text', value ->> 'choices',
       CAST(value ->> 'is_approval' AS INTEGER), value ->> 'source', 'open', '', CAST(value ->> 'expires_at' AS BIGINT), :now
FROM {{each}}(:asks) JOIN {{batch.ours}} ON ours.id = :session_id AND ours.turn_id = :turn_id

-- name: commit_answer
-- Keep the answer to one question, while others of its run are open.
UPDATE asks SET state = 'answered', answer = :answer, ended_at = :now
WHERE id = :ask AND state = 'open'
  AND EXISTS (SELECT 1 FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id)

-- name: open_asks
-- The open questions of a conversation, oldest first.
SELECT id, run_id, session_id, name, text, choices, is_approval, source, expires_at, created_at
FROM asks WHERE session_key = :session_key AND state = 'open' ORDER BY created_at, id

-- name: asks_page
-- Open questions of everybody, the oldest first, after a given place.
SELECT id, run_id, session_key, text, choices, is_approval, source, expires_at, created_at FROM asks
WHERE state = 'open' AND (created_at, id) > (:after_at, :after_id) ORDER BY created_at, id LIMIT :limit

-- name: asks_of_key
-- What operators see of the open questions of one conversation, the oldest first.
SELECT id, run_id, session_key, text, choices, is_approval, source, expires_at, created_at FROM asks
WHERE session_key = :session_key AND state = 'open' ORDER BY created_at, id LIMIT :limit

-- name: ask_by_id
-- One question, however it stands.
SELECT id, run_id, session_key, text, choices, is_approval, source, expires_at, created_at, state FROM asks WHERE id = :ask

-- name: calls_of_runs
-- The tool calls that some runs have planned and not begun.
SELECT run_id, name FROM steps
WHERE run_id IN (SELECT value ->> 'id' FROM {{each}}(:runs)) AND kind <> 'response' AND state = 'planned' ORDER BY run_id, n

-- name: withdraw_ask
-- Let the time of an open question be over now.
UPDATE asks SET expires_at = :now WHERE id = :ask AND state = 'open' AND (expires_at IS NULL OR expires_at > :now)
RETURNING id

-- name: answers_of_run
-- What was said to questions of a run that wait for the others.
SELECT name, answer FROM asks WHERE run_id = :run AND state = 'answered' AND answer <> ''

-- name: last_ended_ask
-- How the last question of a conversation ended.
SELECT state FROM asks WHERE session_key = :session_key AND state <> 'open' ORDER BY ended_at DESC LIMIT 1

-- name: asks_overdue
-- Open questions whose time is over, from behind a given one on.
SELECT id, text, session_key, expires_at, source AS source_json FROM asks
WHERE state = 'open' AND expires_at <= :now AND expires_at >= :after_at AND (expires_at > :after_at OR id > :after_id)
ORDER BY expires_at, id LIMIT :limit

-- name: unmark_waiting
-- Take the run of a question that ends without a turn out of the session's fact `asking`, unless another question of it is open.
UPDATE facts SET value = TRIM(REPLACE(' ' || value || ' ', ' ' || (SELECT run_id FROM asks WHERE id = :ask) || ' ', ' '))
WHERE name = 'asking' AND scope = (SELECT session_id FROM asks WHERE id = :ask)
  AND NOT EXISTS (SELECT 1 FROM asks AS other JOIN asks AS ended ON ended.run_id = other.run_id
                  WHERE ended.id = :ask AND other.id <> :ask AND other.state = 'open')

-- name: drop_unmarked
-- Forget the fact where no run is left in it.
DELETE FROM facts WHERE name = 'asking' AND value = '' AND scope = (SELECT session_id FROM asks WHERE id = :ask)

-- name: expire_ask
-- End an open question without a turn.
UPDATE asks SET state = 'expired', ended_at = :now WHERE id = :ask AND state = 'open'

-- name: forget_asks
-- Forget questions that ended long ago.
DELETE FROM asks WHERE ended_at < :before

-- The runs of turns that call tools, and their steps. Tables: runs, steps; sessions, inbox, asks and
-- messages are read. A step is written
-- only by the holder of its run, and only while the session is at the version that the turn loaded.

-- name: hold_run
-- The fence: the run is ours, and its turn could still be committed. A run that is not there yet is opened. The row is written
-- each time, so that this waits for whoever takes the run up at the same moment, and then sees it.
INSERT INTO runs (id, session_id, session_key, inbound_id, holder, created_at)
SELECT :run, :session_id, :session_key, :inbound_id, :holder, :now
WHERE COALESCE((SELECT version FROM sessions WHERE id = :session_id), 0) = :version
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder WHERE runs.holder = excluded.holder
RETURNING id
-- gives: held
(SELECT id FROM runs WHERE id = :run AND holder = :holder
    AND COALESCE((SELECT version FROM sessions WHERE id = :session_id), 0) = :version) AS held

-- name: add_steps
-- Add steps at the end of a run that is ours. Written again, they stay as they are by now: a write whose answer was lost may
-- reach the database late, after its repetition and after the calls have begun.
INSERT INTO steps (run_id, n, kind, call_id, name, arguments, effect, state, body, begun_at)
SELECT held.id, CAST(value ->> 'n' AS INTEGER), value ->> 'kind', value ->> 'call_id', value ->> 'name',
       value ->> 'arguments', value ->> 'effect', value ->> 'state', value ->> 'body',
       CAST(value ->> 'begun_at' AS BIGINT)
FROM {{each}}(:steps) JOIN {{held}} ON true WHERE true
ON CONFLICT (run_id, n) DO UPDATE SET state = steps.state
RETURNING n

-- name: begin_step
-- Write down that a call of a run that is ours begins. One that has ended by now stays ended: this write came late.
UPDATE steps SET state = CASE WHEN state = 'done' THEN 'done' ELSE 'begun' END, effect = :effect, begun_at = :now
FROM {{held}} WHERE steps.run_id = held.id AND steps.n = :n
RETURNING steps.n AS n

-- name: end_step
-- Write down how a call of a run that is ours ended.
UPDATE steps SET state = 'done', effect = :effect, body = :body, ended_at = :now
FROM {{held}} WHERE steps.run_id = held.id AND steps.n = :n
RETURNING steps.n AS n

-- name: take_run_up
-- Make a run ours that is still held by whom we saw, or that waits for a person as we saw.
UPDATE runs SET holder = :holder, state = 'running', inbound_id = :inbound_id WHERE id = :run AND holder = :seen RETURNING id

-- name: steps_of_run
-- All that a run has done, in order.
SELECT n, kind, call_id, name, arguments, effect, state, body, begun_at FROM steps WHERE run_id = :run ORDER BY n

-- name: unknown_steps
-- The results of a committed turn that say of a call that it may have happened.
SELECT data FROM messages
WHERE session_id = :session_id AND turn_id = :turn_id AND role = 'tool' AND data LIKE '%"may_have_happened":%' ORDER BY n

-- name: run_holder
-- Who holds a run, and up to which step a commit has counted what it cost.
SELECT holder, counted FROM runs WHERE id = :run

-- name: commit_no_steps
-- Forget the steps of a run whose turn is committed: the transcript has what they gave.
DELETE FROM steps
WHERE run_id = :run AND EXISTS (SELECT 1 FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id)

-- name: commit_no_run
-- Forget a run whose turn is committed.
DELETE FROM runs
WHERE id = :run AND EXISTS (SELECT 1 FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id)

-- name: runs_left_over
-- Runs whose message ended without them: of a worker that came too late. While a question of a run is open, an answer may
-- still take it up: it needs the steps, whatever became of the mail that answered first.
SELECT id FROM runs
WHERE created_at < :before
  AND (state = 'parked' OR EXISTS (SELECT 1 FROM inbox WHERE inbox.id = runs.inbound_id AND inbox.state <> 'pending')
       OR EXISTS (SELECT 1 FROM known_messages WHERE digest = message_digest(runs.inbound_id)))
  AND NOT EXISTS (SELECT 1 FROM asks WHERE asks.run_id = runs.id AND asks.state = 'open')
ORDER BY created_at LIMIT :limit

-- name: forget_steps
-- Forget the steps of a run.
DELETE FROM steps WHERE run_id = :run

-- name: forget_run
-- Forget a run.
DELETE FROM runs WHERE id = :run

-- Background work. Tables: tasks, task_stops. Reads inbox, known_messages, outbox and dead to find tasks whose end nobody has seen,
-- and those that are not over yet.

-- name: lock_conversation
-- Let nobody else add a task of this conversation until the transaction is over: the row is locked, whatever it says. A time of 0
-- stops nothing.
INSERT INTO task_stops (root_key, stopped_at) VALUES (:root_key, 0)
ON CONFLICT (root_key) DO UPDATE SET stopped_at = task_stops.stopped_at

-- name: add_task
-- Keep a new task, unless as many of its conversation run as may, or it is known already. The conversation must be locked.
INSERT INTO tasks (id, kind, name, text, root_key, parent_key, parent, asked_by, owner, depth, in_a_row, inbound_id, state,
                   asked_at, created_at)
SELECT :id, :kind, :name, :text, :root_key, :parent_key, :parent, :asked_by, :owner, CAST(:depth AS INTEGER),
       CAST(:in_a_row AS INTEGER), :inbound_id, 'running', CAST(:asked_at AS BIGINT), CAST(:created_at AS BIGINT)
WHERE (SELECT COUNT(*) FROM tasks WHERE root_key = :root_key AND state = 'running') < :most
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: task_by_id
-- One task. It counts as stopped, too, if its conversation was told to stop after it was asked for.
SELECT id, kind, name, text, root_key, parent_key, parent, asked_by, owner, depth, in_a_row, asked_at, created_at,
       CASE WHEN state = 'running' AND asked_at <= (SELECT stopped_at FROM task_stops WHERE task_stops.root_key = tasks.root_key)
            THEN 'stopped' ELSE state END AS state
FROM tasks WHERE id = :id

-- name: tasks_of
-- The tasks of a conversation that run, and those that they started, oldest first.
SELECT id, kind, name, text, root_key, parent_key, parent, asked_by, owner, depth, in_a_row, asked_at, created_at, state
FROM tasks WHERE root_key = :root_key AND state = 'running' ORDER BY created_at, id LIMIT :limit

-- name: mark_stop
-- Remember when a conversation was told to stop, for tasks that are just being started.
INSERT INTO task_stops (root_key, stopped_at) VALUES (:root_key, :stopped_at)
ON CONFLICT (root_key) DO UPDATE
SET stopped_at = CASE WHEN excluded.stopped_at > task_stops.stopped_at THEN excluded.stopped_at ELSE task_stops.stopped_at END

-- name: tasks_to_stop
-- The running tasks of a conversation that were asked for by then.
SELECT id, kind, name, text, root_key, parent_key, parent, asked_by, owner, depth, in_a_row, asked_at, created_at, state
FROM tasks WHERE root_key = :root_key AND state = 'running' AND asked_at <= :stopped_at

-- name: stop_tasks
-- Stop the running tasks of a conversation that were asked for by then.
UPDATE tasks SET state = 'stopped', text = '', ended_at = CAST(:now AS BIGINT)
WHERE root_key = :root_key AND state = 'running' AND asked_at <= :stopped_at

-- name: end_task
-- Record how a task ended, once.
UPDATE tasks SET state = :state, text = '', ended_at = CAST(:now AS BIGINT) WHERE id = :id AND state = 'running'
RETURNING id

-- name: unseen_tasks
-- Running tasks whose message is not in the journal, or has ended; `leaving`: its answer is on its way; `lost`: it was given up.
SELECT tasks.id, kind, name, text, root_key, parent_key, parent, asked_by, owner, depth, in_a_row, asked_at, created_at,
       tasks.state, CASE WHEN known.digest IS NULL THEN inbox.state ELSE COALESCE(known.state, 'answered') END AS turn,
       COALESCE(inbox.reason, known.reason) AS turn_reason,
       EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = inbox.turn_id AND outbox.state IN ('pending', 'sending')) AS leaving,
       EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = inbox.turn_id AND outbox.state = 'buried') AS lost
FROM tasks LEFT JOIN inbox ON inbox.id = tasks.inbound_id
LEFT JOIN known_messages AS known ON known.digest = message_digest(tasks.inbound_id)
WHERE tasks.state = 'running' AND tasks.created_at <= :before AND (inbox.state IS NULL OR inbox.state <> 'pending')
ORDER BY tasks.created_at LIMIT :limit

-- name: tasks_to_forget
-- Tasks that ended before a given time, unless an answer of theirs waits or may be replayed: it would find nobody.
SELECT id, parent_key FROM tasks
WHERE ended_at <= :before
  AND NOT EXISTS (SELECT 1 FROM outbox WHERE destination = 'to:task:' || tasks.id AND state IN ('pending', 'sending'))
  AND NOT EXISTS (
    SELECT 1 FROM inbox JOIN dead ON dead.session_key = inbox.session_key
    WHERE inbox.id = tasks.inbound_id AND dead.state NOT IN ('replayed', 'dropped'))

-- name: forget_tasks
-- Forget some tasks.
DELETE FROM tasks WHERE id IN (SELECT value ->> 'id' FROM {{each}}(:rows))

-- name: forget_stops
-- Forget when conversations were told to stop: no task from before then begins any more.
DELETE FROM task_stops WHERE stopped_at <= :before

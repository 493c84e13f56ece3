-- What only some commits write beside the rows in batch.sql. Tables: dead, facts, sessions, flushes, messages. Each statement
-- writes only if the commit won its session: `ours` is given by batch.sql.

-- name: commit_dead
-- Set an inbound aside.
INSERT INTO dead (kind, ref, session_key, reason, detail, payload, attempts, state, created_at)
SELECT 'inbound', :id, :session_key, :reason, :detail, :payload, :attempts, 'open', :now
FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id

-- name: commit_next_session
-- Open the session that follows this one.
INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, parent_id, owner)
SELECT :next_session_id, :session_key, 1, :turn_id, 0, :now, :now, :session_id, :owner
FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id

-- name: commit_flush
-- Queue a session that ends to be looked through for notes, unless all of it was.
INSERT INTO flushes (session_id, session_key, state, upto, tries, due_at, turn_id)
SELECT :session_id, :session_key, 'due', 0, 0, :now, ''
FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id
ON CONFLICT (session_id) DO UPDATE SET state = 'due', tries = 0, due_at = excluded.due_at
WHERE flushes.state <> 'due' AND flushes.upto < :row_count

-- name: commit_inactive
-- Take rows out of the conversation without deleting them.
UPDATE messages SET active = 0
FROM {{batch.ours}}
WHERE ours.id = :session_id AND ours.turn_id = :turn_id
  AND messages.session_id = :session_id AND messages.n >= :from_n AND messages.n <= :to_n AND messages.active = 1

-- name: commit_fact
-- Remember a fact.
INSERT INTO facts (scope, name, value)
SELECT :scope, :name, :value
FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id
ON CONFLICT (scope, name) DO UPDATE SET value = excluded.value

-- name: commit_no_fact
-- Forget a fact.
DELETE FROM facts
WHERE scope = :scope AND name = :name
  AND EXISTS (SELECT 1 FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id)

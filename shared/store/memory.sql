-- Memory. Tables: notes (what outlives a conversation), flushes (which sessions are looked through for notes, and how far
-- each was). Forgetting hangs on a commit: see batch.sql for `ours`.

-- name: notes_of
-- The newest notes of an owner.
SELECT id, text, created_at FROM notes WHERE owner = :owner ORDER BY id DESC LIMIT :limit

-- name: note_add
-- Keep a note for the session that a key talks to now, unless its owner has the same note.
INSERT INTO notes (owner, text, session_id, created_at)
SELECT :owner, :text, routes.session_id, :now
FROM routes
WHERE routes.session_key = :session_key
  AND NOT EXISTS (SELECT 1 FROM notes WHERE notes.owner = :owner AND notes.text = :text)
RETURNING id

-- name: commit_forget
-- Delete one note of an owner, if this turn won its session.
DELETE FROM notes
WHERE owner = :owner AND id = :note_id
  AND EXISTS (SELECT 1 FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id)

-- name: commit_forget_all
-- Delete all notes of an owner, if this turn won its session.
DELETE FROM notes
WHERE owner = :owner
  AND EXISTS (SELECT 1 FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id)

-- name: flush_candidates
-- Sessions that were last active in a span of time and have rows that nobody looked through, in the order of that time.
SELECT id, session_key, updated_at FROM sessions
WHERE updated_at >= :after AND updated_at < :before AND (updated_at > :after OR id > :after_id)
  AND ended_at IS NULL AND message_count > 0
  AND NOT EXISTS (
      SELECT 1 FROM flushes
      WHERE flushes.session_id = sessions.id AND (flushes.state = 'due' OR flushes.upto >= sessions.message_count))
ORDER BY updated_at, id LIMIT :limit

-- name: flush_queue
-- Queue a session to be looked through. Changes nothing if it is queued already.
INSERT INTO flushes (session_id, session_key, state, upto, tries, due_at, turn_id)
VALUES (:session_id, :session_key, 'due', 0, 0, :now, '')
ON CONFLICT (session_id) DO UPDATE SET state = 'due', tries = 0, due_at = excluded.due_at
WHERE flushes.state <> 'due'

-- name: flush_due
-- Queued sessions whose time has come.
SELECT session_id, session_key, due_at FROM flushes
WHERE state = 'due' AND due_at <= :before ORDER BY due_at LIMIT :limit

-- name: flush_put_off
-- Put a queued session off. Of several processes that do so at once, one succeeds.
UPDATE flushes SET due_at = :later
WHERE session_id = :session_id AND state = 'due' AND due_at = :due_at
RETURNING session_id

-- name: flush_of
-- A queued session, with what is needed to decide whether it has moved on.
SELECT flushes.upto, flushes.tries, sessions.version, sessions.message_count, sessions.updated_at, sessions.ended_at,
       flushes.due_at
FROM flushes JOIN sessions ON sessions.id = flushes.session_id
WHERE flushes.session_id = :session_id AND flushes.state = 'due'

-- name: flush_rows
-- The end of a session's rows that nobody looked through, newest first.
SELECT role, text, data, inbound_id FROM messages
WHERE session_id = :session_id AND active = 1 AND n > :after ORDER BY n DESC LIMIT :limit

-- name: flush_begin
-- Count a try at a queued session before it begins. Returns nothing where no try is left.
UPDATE flushes SET tries = tries + 1, turn_id = :turn_id
WHERE session_id = :session_id AND state = 'due' AND tries < :try_limit
RETURNING tries

-- name: flush_failed
-- Let a failed try be repeated later, unless another try began since.
UPDATE flushes SET due_at = :later
WHERE session_id = :session_id AND state = 'due' AND turn_id = :turn_id

-- name: flush_close
-- Take a session off the queue without notes, if it has not moved on.
UPDATE flushes SET state = :state, upto = :upto
WHERE session_id = :session_id AND state = 'due'
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND version = :version)

-- name: flush_done
-- Take a session off the queue with notes, if it has not moved on and this try is the last that began.
UPDATE flushes SET state = 'done', upto = :upto
WHERE session_id = :session_id AND state = 'due' AND turn_id = :turn_id
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND version = :version)
RETURNING session_id
-- gives: flushed
(SELECT session_id FROM flushes
 WHERE session_id = :session_id AND turn_id = :turn_id AND state = 'done') AS flushed

-- name: flush_note
-- Keep a note of a session that was looked through just now, unless its owner has the same note. Returns the id: without
-- that, PostgreSQL would not keep the order of several.
INSERT INTO notes (owner, text, session_id, created_at)
SELECT :owner, :text, :session_id, :now
FROM {{flushed}} WHERE NOT EXISTS (SELECT 1 FROM notes WHERE notes.owner = :owner AND notes.text = :text)
RETURNING id

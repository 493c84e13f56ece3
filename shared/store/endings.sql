-- Sessions of work that is over. Tables: facts, routes, inbox, sessions, flushes. Which keys are to end is kept as facts, so that a turn
-- which still runs is waited for.

-- name: note_endings
-- Note that the sessions of some keys are to end.
INSERT INTO facts (scope, name, value)
SELECT 'ending', value ->> 'key', value ->> 'reason' FROM {{each}}(:keys) WHERE true
ON CONFLICT (scope, name) DO NOTHING

-- name: flush_endings
-- Queue those of them for which no message waits to be looked through for notes, as a session that a commit ends.
INSERT INTO flushes (session_id, session_key, state, upto, tries, due_at, turn_id)
SELECT sessions.id, sessions.session_key, 'due', 0, 0, CAST(:now AS BIGINT), ''
FROM facts JOIN routes ON routes.session_key = facts.name
JOIN sessions ON sessions.id = routes.session_id AND sessions.session_key = facts.name
WHERE facts.scope = 'ending' AND sessions.ended_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.session_key = facts.name AND inbox.state = 'pending')
ON CONFLICT (session_id) DO UPDATE SET state = 'due', tries = 0, due_at = excluded.due_at
WHERE flushes.state <> 'due' AND flushes.upto < (SELECT message_count FROM sessions WHERE sessions.id = flushes.session_id)

-- name: end_noted
-- End them. The version stays what it was: nobody is about to move them on.
UPDATE sessions SET ended_at = CAST(:now AS BIGINT), end_reason = facts.value
FROM facts JOIN routes ON routes.session_key = facts.name
WHERE facts.scope = 'ending' AND sessions.id = routes.session_id AND sessions.session_key = facts.name
  AND sessions.ended_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.session_key = facts.name AND inbox.state = 'pending')

-- name: forget_endings
-- Forget the keys for which no message waits and whose session has ended, or never began.
DELETE FROM facts
WHERE scope = 'ending'
  AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.session_key = facts.name AND inbox.state = 'pending')
  AND NOT EXISTS (
    SELECT 1 FROM routes JOIN sessions ON sessions.id = routes.session_id AND sessions.session_key = facts.name
    WHERE routes.session_key = facts.name AND sessions.ended_at IS NULL)

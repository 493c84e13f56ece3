-- Conversations, notes and costs of an older gateway. Tables: sessions, messages, routes, turns, facts, flushes, notes, usage.
-- An import signs a session with its own turn id, and the other statements of its transaction write only where that stands.

-- name: import_standing
-- An imported conversation as it is here.
SELECT version, turn_id, message_count FROM sessions WHERE id = :session_id

-- name: import_session
-- Bring a conversation in, unless it is here already.
INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason, owner)
VALUES (:session_id, :session_key, 1, :turn_id, :added, :created_at, :updated_at, :title, :parent_id, :ended_at, :end_reason, :owner)
ON CONFLICT (id) DO NOTHING
RETURNING version

-- name: import_growth
-- Bring in what was said since the last import, if nobody has moved the session on in between: the compare-and-set.
UPDATE sessions
SET version = version + 1, turn_id = :turn_id, message_count = message_count + :added, updated_at = :updated_at,
    title = COALESCE(CAST(:title AS TEXT), title)
WHERE id = :session_id AND version = :version
RETURNING version

-- name: import_message
-- Add a row to the transcript.
INSERT INTO messages (session_id, n, turn_id, role, text, data, active, created_at)
SELECT id, :n, turn_id, :role, :text, :data, :active, :created_at
FROM sessions WHERE id = :session_id AND turn_id = :turn_id

-- name: import_inactive
-- Take rows out of the conversation that left it at the older gateway since the last import.
UPDATE messages SET active = 0
WHERE session_id = :session_id AND n >= :from_n AND n <= :to_n AND active = 1
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND turn_id = :turn_id)

-- name: import_route
-- Let the key talk to the imported session, unless it has a conversation of its own here, or mail that waits.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT :session_key, id, 0, 0, :created_at FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (session_key) DO UPDATE SET session_id = excluded.session_id
WHERE routes.last_seq = routes.done_seq
  AND EXISTS (SELECT 1 FROM sessions AS before WHERE before.id = routes.session_id AND before.turn_id LIKE 'import!_%' ESCAPE '!')
RETURNING session_key

-- name: import_turn
-- Record the import as a turn.
INSERT INTO turns (id, session_id, session_key, version, outcome, attempts, worker, claimed_at, started_at, committed_at)
SELECT turn_id, id, session_key, version, 'imported', 0, 'import', :now, :now, :now
FROM sessions WHERE id = :session_id AND turn_id = :turn_id

-- name: import_fact
-- Keep a fact of the session.
INSERT INTO facts (scope, name, value)
SELECT id, :fact, :value FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (scope, name) DO UPDATE SET value = excluded.value

-- name: import_flushed
-- Record that the older gateway looked the session through for notes.
INSERT INTO flushes (session_id, session_key, state, upto, tries, due_at, turn_id)
SELECT id, session_key, 'done', :upto, 0, 0, '' FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (session_id) DO UPDATE SET state = 'done', upto = excluded.upto

-- name: import_usage
-- Record what a model has cost in the session: a sum, so it replaces the sum of the last import.
INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,
                   cost_nano, priced, last_prompt, updated_at)
SELECT id, :owner, :agent, :model, :day, :requests, :input, :output, :cache_read, :cache_write, :total,
       :cost_nano, :priced, CAST(:last_prompt AS BIGINT), :now
FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (session_id, day, owner, agent, model) DO UPDATE
SET requests = excluded.requests, input = excluded.input, output = excluded.output, cache_read = excluded.cache_read,
    cache_write = excluded.cache_write, total = excluded.total, cost_nano = excluded.cost_nano, priced = excluded.priced,
    last_prompt = excluded.last_prompt, updated_at = excluded.updated_at

-- name: import_usage_apart
-- Record what a model has cost on a day where the session is not known: a sum, so it replaces that of the last import.
INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,
                   cost_nano, priced, last_prompt, updated_at)
VALUES (:session_id, :owner, :agent, :model, :day, :requests, :input, :output, :cache_read, :cache_write, :total,
       :cost_nano, :priced, CAST(:last_prompt AS BIGINT), :now)
ON CONFLICT (session_id, day, owner, agent, model) DO UPDATE
SET requests = excluded.requests, input = excluded.input, output = excluded.output, cache_read = excluded.cache_read,
    cache_write = excluded.cache_write, total = excluded.total, cost_nano = excluded.cost_nano, priced = excluded.priced,
    last_prompt = excluded.last_prompt, updated_at = excluded.updated_at

-- name: import_note_once
-- Record that a note was imported, unless it was before. The token tells this import from a former one.
INSERT INTO facts (scope, name, value) VALUES (:scope, :name, :token)
ON CONFLICT (scope, name) DO NOTHING
RETURNING name
-- gives: noted
(SELECT name FROM facts WHERE scope = :scope AND name = :name AND value = :token) AS noted

-- name: import_note
-- Keep a note that was recorded just now, unless its owner has the same note.
INSERT INTO notes (owner, text, session_id, created_at)
SELECT :owner, :text, :scope, :now FROM {{noted}}
WHERE NOT EXISTS (SELECT 1 FROM notes WHERE notes.owner = :owner AND notes.text = :text)

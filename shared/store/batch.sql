-- The commits of several turns, written together. Tables: sessions, routes, inbox, messages, turns, usage, outbox. Each
-- statement gets a JSON list with the rows of all of them; `value` is one element. batch.py has a worked example.

-- name: commit_sessions
-- The compare-and-set: move on each session that is still at the version its turn loaded and whose mail all waits. The mail
-- is counted, so that a message which an operator rejected meanwhile is not ended twice. Each message is looked up by id:
-- written as a join, PostgreSQL read the whole inbox for each turn, and 2,000 turns a second became 1,000.
UPDATE sessions
SET version = version + 1, turn_id = value ->> 'turn_id', updated_at = CAST(value ->> 'now' AS BIGINT),
    message_count = message_count + CAST(value ->> 'added' AS BIGINT), title = COALESCE(value ->> 'title', title),
    ended_at = CAST(value ->> 'ended_at' AS BIGINT), end_reason = value ->> 'end_reason',
    owner = COALESCE(owner, value ->> 'owner')
FROM {{rows(:turns)}} AS turn
WHERE sessions.id = value ->> 'session_id' AND version = CAST(value ->> 'version' AS BIGINT)
  AND CAST(turn.value ->> 'waiting' AS INTEGER) = (
        SELECT count((SELECT 1 FROM inbox WHERE inbox.id = mail.value ->> 'id' AND inbox.state = 'pending'
-- [postgres] Locked, so that this waits for a rejection that is not committed yet and then sees it.
                      FOR NO KEY UPDATE
-- [both]
        )) FROM {{each}}(turn.value -> 'mail') AS mail)
RETURNING sessions.id, turn_id, version
-- gives: ours
sessions AS ours

-- name: commit_new_sessions
-- The compare-and-set of sessions that do not exist yet: open each whose mail all waits.
INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, title, ended_at, end_reason, owner)
SELECT value ->> 'session_id', value ->> 'session_key', 1, value ->> 'turn_id', CAST(value ->> 'added' AS BIGINT),
       CAST(value ->> 'now' AS BIGINT), CAST(value ->> 'now' AS BIGINT), value ->> 'title',
       CAST(value ->> 'ended_at' AS BIGINT), value ->> 'end_reason', value ->> 'owner'
FROM {{rows(:turns)}} AS turn
WHERE CAST(turn.value ->> 'waiting' AS INTEGER) = (
        SELECT count((SELECT 1 FROM inbox WHERE inbox.id = mail.value ->> 'id' AND inbox.state = 'pending'
-- [postgres] Locked, as above.
                      FOR NO KEY UPDATE
-- [both]
        )) FROM {{each}}(turn.value -> 'mail') AS mail)
ON CONFLICT (id) DO NOTHING
RETURNING id, turn_id, version
-- gives: ours
sessions AS ours

-- name: commit_routes
-- Record how far each key has come and which session it talks to from now on, for the turns that won.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT value ->> 'session_key', value ->> 'talks_to', CAST(value ->> 'done_seq' AS BIGINT),
       CAST(value ->> 'done_seq' AS BIGINT), CAST(value ->> 'now' AS BIGINT)
FROM {{rows(:turns)}} JOIN {{ours}} ON ours.id = value ->> 'session_id' AND ours.turn_id = value ->> 'turn_id' WHERE true
ON CONFLICT (session_key) DO UPDATE
SET session_id = excluded.session_id,
    done_seq = CASE WHEN excluded.done_seq > routes.done_seq THEN excluded.done_seq ELSE routes.done_seq END

-- name: commit_inbox
-- End journaled inbounds, for the turns that won.
UPDATE inbox
SET state = value ->> 'state', reason = value ->> 'reason', attempts = CAST(value ->> 'attempts' AS INTEGER),
    turn_id = value ->> 'turn_id', finished_at = CAST(value ->> 'now' AS BIGINT)
FROM {{rows(:ended)}} JOIN {{ours}} ON ours.id = value ->> 'session_id' AND ours.turn_id = value ->> 'turn_id'
WHERE inbox.id = value ->> 'id'

-- name: commit_unjournaled
-- Record inbounds that only Redis knew, already ended, for the turns that won. Fails as AlreadyDone if one is known.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, reason, attempts, turn_id, received_at, finished_at)
SELECT value ->> 'id', value ->> 'event_id', value ->> 'platform', value ->> 'session_key',
       CAST(value ->> 'seq' AS BIGINT), value ->> 'payload', value ->> 'state', value ->> 'reason',
       CAST(value ->> 'attempts' AS INTEGER), value ->> 'turn_id', CAST(value ->> 'received_at' AS BIGINT),
       CAST(value ->> 'now' AS BIGINT)
FROM {{rows(:unjournaled)}} JOIN {{ours}} ON ours.id = value ->> 'session_id' AND ours.turn_id = value ->> 'turn_id'

-- name: commit_messages
-- Add rows to the transcripts, for the turns that won.
INSERT INTO messages (session_id, n, turn_id, role, text, data, inbound_id, created_at)
SELECT value ->> 'session_id', CAST(value ->> 'n' AS BIGINT), value ->> 'turn_id', value ->> 'role', value ->> 'text',
       value ->> 'data', value ->> 'inbound_id', CAST(value ->> 'now' AS BIGINT)
FROM {{rows(:messages)}} JOIN {{ours}} ON ours.id = value ->> 'session_id' AND ours.turn_id = value ->> 'turn_id'

-- name: commit_turns
-- Record the turns that won.
INSERT INTO turns (id, session_id, session_key, version, outcome, attempts, worker, claimed_at, started_at, committed_at)
SELECT value ->> 'turn_id', value ->> 'session_id', value ->> 'session_key', ours.version, value ->> 'outcome',
       CAST(value ->> 'attempts' AS INTEGER), value ->> 'worker', CAST(value ->> 'claimed_at' AS BIGINT),
       CAST(value ->> 'started_at' AS BIGINT), CAST(value ->> 'now' AS BIGINT)
FROM {{rows(:turns)}} JOIN {{ours}} ON ours.id = value ->> 'session_id' AND ours.turn_id = value ->> 'turn_id'

-- name: commit_usage
-- Count what the answers of the turns that won have cost. A turn has one row per model, and a session is won by one turn: so
-- no row is changed twice here, which PostgreSQL would refuse.
INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,
                   cost_nano, priced, last_prompt, updated_at)
SELECT value ->> 'session_id', value ->> 'owner', value ->> 'agent', value ->> 'model', value ->> 'day',
       CAST(value ->> 'requests' AS BIGINT), CAST(value ->> 'input' AS BIGINT), CAST(value ->> 'output' AS BIGINT),
       CAST(value ->> 'cache_read' AS BIGINT), CAST(value ->> 'cache_write' AS BIGINT), CAST(value ->> 'total' AS BIGINT),
       CAST(value ->> 'cost_nano' AS BIGINT), CAST(value ->> 'priced' AS BIGINT), CAST(value ->> 'last_prompt' AS BIGINT),
       CAST(value ->> 'now' AS BIGINT)
FROM {{rows(:usage)}} JOIN {{ours}} ON ours.id = value ->> 'session_id' AND ours.turn_id = value ->> 'turn_id' WHERE true
ON CONFLICT (session_id, day, owner, agent, model) DO UPDATE
SET requests = usage.requests + excluded.requests, input = usage.input + excluded.input,
    output = usage.output + excluded.output, cache_read = usage.cache_read + excluded.cache_read,
    cache_write = usage.cache_write + excluded.cache_write, total = usage.total + excluded.total,
    cost_nano = usage.cost_nano + excluded.cost_nano, priced = usage.priced + excluded.priced,
    last_prompt = COALESCE(excluded.last_prompt, usage.last_prompt), updated_at = excluded.updated_at

-- name: commit_outbox
-- Add the parts of the replies of the turns that won. The parts of a turn are numbered in their order.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT value ->> 'idempotency_key', value ->> 'turn_id', CAST(value ->> 'ordinal' AS INTEGER), value ->> 'conversation',
       value ->> 'destination', value ->> 'platform', value ->> 'payload', 'pending', CAST(value ->> 'now' AS BIGINT)
FROM {{rows(:outbox)}} JOIN {{ours}} ON ours.id = value ->> 'session_id' AND ours.turn_id = value ->> 'turn_id'
ORDER BY CAST(value ->> 'ordinal' AS INTEGER)
RETURNING id, turn_id
-- gives: parts
outbox AS parts

-- name: commit_outcome
-- Which turns won and the numbers of their parts, as two JSON lists: of turn ids, and of [turn id, part].
-- [sqlite]
SELECT (SELECT CAST(json_group_array(ours.turn_id) AS TEXT)
        FROM json_each(:turns)
        JOIN sessions AS ours ON ours.id = value ->> 'session_id' AND ours.turn_id = value ->> 'turn_id') AS won,
       (SELECT CAST(json_group_array(json_array(parts.turn_id, parts.id)) AS TEXT)
        FROM json_each(:turns) JOIN outbox AS parts ON parts.turn_id = value ->> 'turn_id') AS parts
-- [postgres]
SELECT (SELECT CAST(json_agg(ours.turn_id) AS TEXT) FROM ours) AS won,
       (SELECT CAST(json_agg(json_build_array(parts.turn_id, parts.id)) AS TEXT) FROM parts) AS parts

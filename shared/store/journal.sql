-- The journal. Tables: inbox (one row per accepted inbound), known_messages (what retention leaves of it), routes (per session
-- key: its session, the last number given, the last number that has ended).

-- name: accept_route
-- Give the key its next number, unless this message was accepted before or too many messages of the key wait.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT :session_key, :session_id, 1, 0, :now
WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE id = :id)
  AND NOT EXISTS (SELECT 1 FROM known_messages WHERE digest = message_digest(:id))
ON CONFLICT (session_key) DO UPDATE SET last_seq = routes.last_seq + 1
WHERE routes.last_seq - routes.done_seq < :mailbox_limit
RETURNING last_seq
-- gives: numbered
-- `changes()` counts the rows of the statement just before: it gave a number or it did not.
(SELECT last_seq FROM routes WHERE session_key = :session_key AND changes() > 0) AS numbered

-- name: accept_inbox
-- Journal the message under the number just given. Writes nothing if none was given.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, received_at)
SELECT :id, :event_id, :platform, :session_key, numbered.last_seq, :payload, 'pending', :now
FROM {{numbered}}
RETURNING seq AS id

-- name: inbox_by_id
-- One inbound and how far it has come. What retention has moved out of the journal has neither number nor turn.
SELECT id, event_id, platform, session_key, seq, payload, state, attempts, reason, turn_id, received_at, finished_at
FROM inbox WHERE id = :id
UNION ALL
SELECT :id, '', platform, COALESCE(session_key, ''), NULL, '', COALESCE(state, 'answered'), attempts, reason, NULL, received_at,
       finished_at
FROM known_messages WHERE digest = message_digest(:id)

-- name: accepted_before
-- The inbound that this message was accepted as. PostgreSQL shows a row whose first commit still waits for a synchronous replica, if
-- who sent it gave up; the record that is written here waits for the same replica, so the answer means that both have the row.
SELECT session_key, seq, payload, state
-- [postgres]
     , CASE WHEN current_setting('synchronous_standby_names') <> '' THEN pg_logical_emit_message(true, 'keyturn', '') END AS waited
-- [both]
FROM (SELECT session_key, seq, payload, state FROM inbox WHERE id = :id
      UNION ALL
      SELECT COALESCE(session_key, ''), 0, '', COALESCE(state, 'answered')
      FROM known_messages WHERE digest = message_digest(:id)) AS known

-- name: inbox_by_event
-- The inbounds of one event id, newest first. Reads the whole journal: for a person, not for the pipeline.
SELECT id, platform, received_at FROM inbox WHERE event_id = :event_id ORDER BY received_at DESC LIMIT 10

-- name: route_by_key
-- How far the mail of a key has come, and how much of it waits.
SELECT session_id, last_seq, done_seq, created_at,
       (SELECT COUNT(*) FROM inbox WHERE inbox.session_key = :session_key AND inbox.state = 'pending') AS pending
FROM routes WHERE session_key = :session_key

-- name: pending_of_key
-- The waiting inbounds of a key, in order.
SELECT id, seq, payload, attempts, {{now_ms}} - outage_since AS outage_ms, received_at FROM inbox
WHERE session_key = :session_key AND state = 'pending' AND seq > :after
ORDER BY seq LIMIT :limit

-- name: pending_keys
-- Keys whose oldest waiting mail was received before a given time, in order, from a given key on.
SELECT session_key, MIN(received_at) AS oldest FROM inbox
WHERE state = 'pending' AND session_key > :after AND received_at <= :before
GROUP BY session_key ORDER BY session_key LIMIT :limit

-- name: count_attempt
-- Record the failed attempts of a message, so that they are known after a loss of Redis.
UPDATE inbox SET attempts = :attempts, reason = :reason WHERE id = :id AND state = 'pending'

-- name: note_outage
-- Record since when the provider of a message is away, by the database's clock. The first record counts.
UPDATE inbox SET outage_since = COALESCE(outage_since, {{now_ms}} - :away_ms), reason = :reason
WHERE id = :id AND state = 'pending'

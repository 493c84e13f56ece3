-- What retention removes. Tables: inbox, known_messages, outbox, turns, dead, usage, audit, blob_references, messages, search_rows,
-- search_spans, sessions.
-- Every statement takes so many rows at most, found by index, so that turns which write at the same time hardly wait. Rows
-- that only a look through others can tell are read first, beside the writers.

-- name: expired_inbox
-- Ended messages whose words are too old. One whose dead letter is open keeps them: a replay reads them here. `bare`: its
-- turn is too old as well and no part of a reply is left, so nothing is found by the row any more.
SELECT id, CASE WHEN finished_at < :turns_before
                 AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = inbox.turn_id) THEN 1 ELSE 0 END AS bare
FROM inbox
WHERE state <> 'pending' AND payload <> '' AND finished_at < :before
  AND (state <> 'dead' OR NOT EXISTS (
        SELECT 1 FROM dead WHERE dead.session_key = inbox.session_key AND dead.ref = inbox.id
          AND dead.state NOT IN ('replayed', 'dropped')))
ORDER BY finished_at LIMIT :limit

-- name: empty_inbox
-- Remove the words of some messages. The rows stay, so that a redelivery is still known; a bare one says no more than that, how
-- and when the message ended. Callers of the API may ask for their messages for ever, and are known by the session key.
-- [sqlite] The rows are written anew, at the end of the table. So the pages where they stood become free as a whole; emptied
-- in their places, each would keep its part of a page for ever.
REPLACE INTO inbox (id, event_id, platform, session_key, seq, payload, state, attempts, reason, turn_id, received_at, finished_at)
SELECT inbox.id, CASE WHEN value ->> 'bare' THEN '' ELSE event_id END, platform,
       CASE WHEN value ->> 'bare' AND platform <> 'api' THEN '' ELSE session_key END, seq, '', state, attempts, reason,
       CASE WHEN value ->> 'bare' THEN NULL ELSE turn_id END, received_at, finished_at
FROM {{each}}(:rows) CROSS JOIN inbox
WHERE inbox.id = value ->> 'id' AND inbox.state <> 'pending' AND inbox.payload <> ''
-- [postgres]
UPDATE inbox
SET payload = '', event_id = CASE WHEN value ->> 'bare' = '1' THEN '' ELSE event_id END,
    session_key = CASE WHEN value ->> 'bare' = '1' AND platform <> 'api' THEN '' ELSE session_key END,
    turn_id = CASE WHEN value ->> 'bare' = '1' THEN NULL ELSE turn_id END
FROM jsonb_array_elements(:rows)
WHERE inbox.id = value ->> 'id' AND state <> 'pending'

-- name: emptied_page
-- The next emptied messages by the time that they ended. `bare`: as in expired_inbox, and no dead letter of it is open.
SELECT id, finished_at, CASE WHEN NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = inbox.turn_id)
                 AND NOT EXISTS (
                        SELECT 1 FROM dead WHERE dead.session_key = inbox.session_key AND dead.ref = inbox.id
                          AND dead.state NOT IN ('replayed', 'dropped')) THEN 1 ELSE 0 END AS bare
FROM inbox
WHERE payload = '' AND state <> 'pending' AND (finished_at, id) > (:after, :after_id) AND finished_at < :turns_before
ORDER BY finished_at, id LIMIT :limit

-- name: may_move
-- Whether every process knows the table known_messages: it has been there for long enough, or from the beginning.
SELECT 1 AS yes FROM migrations
WHERE name = '0031_known_messages'
  AND (applied_at < {{now_ms}} - :known_for_ms
       OR NOT EXISTS (SELECT 1 FROM migrations AS earlier WHERE earlier.applied_at < migrations.applied_at - :at_once_ms))

-- name: know_messages
-- Keep what little is still to be known of some messages that have ended.
-- [sqlite]
INSERT INTO known_messages (digest, received_at, finished_at, attempts, platform, state, session_key, reason)
SELECT message_digest(inbox.id), received_at, finished_at, attempts, platform, NULLIF(state, 'answered'),
       CASE WHEN platform = 'api' THEN NULLIF(NULLIF(session_key, ''), 'forgotten') END, reason
FROM {{each}}(:rows) CROSS JOIN inbox
WHERE inbox.id = value ->> 'id' AND inbox.state <> 'pending'
ON CONFLICT (digest) DO NOTHING
-- [postgres] What is kept is what is deleted from the journal, as it is then: somebody may just be forgotten.
WITH gone AS (
    DELETE FROM inbox USING jsonb_array_elements(:rows) WHERE inbox.id = value ->> 'id' AND state <> 'pending'
    RETURNING inbox.*)
INSERT INTO known_messages (digest, received_at, finished_at, attempts, platform, state, session_key, reason)
SELECT message_digest(id), received_at, finished_at, attempts, platform, NULLIF(state, 'answered'),
       CASE WHEN platform = 'api' THEN NULLIF(NULLIF(session_key, ''), 'forgotten') END, reason
FROM gone
ON CONFLICT (digest) DO NOTHING

-- name: leave_inbox
-- Delete messages from the journal that are known without it.
-- [sqlite]
DELETE FROM inbox
WHERE id IN (SELECT value ->> 'id' FROM json_each(:rows)) AND state <> 'pending'
  AND EXISTS (SELECT 1 FROM known_messages WHERE digest = message_digest(inbox.id))

-- name: outbox_page
-- The next parts by number: the last of them, and the times of the oldest and the newest.
SELECT MAX(id) AS last, MIN(created_at) AS oldest, MAX(created_at) AS newest
FROM (SELECT id, created_at FROM outbox WHERE id > :after ORDER BY id LIMIT :limit) AS page

-- name: prune_outbox
-- Delete the parts of a page that ended and are too old. A part that was given up on stays while its dead letter is open.
DELETE FROM outbox
WHERE id > :after AND id <= :last AND created_at < :before
  AND (state = 'sent' OR state = 'buried' AND NOT EXISTS (
        SELECT 1 FROM dead WHERE dead.session_key = outbox.session_key AND dead.ref = CAST(outbox.id AS TEXT)
          AND dead.kind = 'reply' AND dead.state NOT IN ('replayed', 'dropped')))
RETURNING id

-- name: expired_turns
-- Turns that are too old, by their ids, which begin with their time. Those of a key with an open dead letter stay, and those of
-- which a part is still to be sent: deleting the conversation finds the letter and the part by them.
SELECT id FROM turns
WHERE id > :first AND id < :beyond AND committed_at < :before
  AND NOT EXISTS (
        SELECT 1 FROM dead WHERE dead.session_key = turns.session_key AND dead.state NOT IN ('replayed', 'dropped'))
  AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = turns.id AND outbox.state IN ('pending', 'sending'))
ORDER BY id LIMIT :limit

-- name: prune_turns
-- Delete some turns.
DELETE FROM turns WHERE id IN (SELECT value ->> 'id' FROM {{each}}(:rows))

-- name: old_letters_page
-- The same of dead letters in one state.
SELECT MAX(id) AS last, MIN(created_at) AS oldest, MAX(created_at) AS newest
FROM (SELECT id, created_at FROM dead WHERE state = :state AND id > :after ORDER BY id LIMIT :limit) AS page

-- name: prune_dead
-- Delete the dead letters of a page that are too old.
DELETE FROM dead WHERE state = :state AND id > :after AND id <= :last AND created_at < :before RETURNING id

-- name: prune_usage
-- Delete what was spent before a day.
DELETE FROM usage
WHERE (session_id, day, owner, agent, model) IN (
    SELECT session_id, day, owner, agent, model FROM usage WHERE day < :day ORDER BY day LIMIT :limit)
RETURNING session_id

-- name: old_audit_page
-- The same of records of the audit log.
SELECT MAX(id) AS last, MIN(at) AS oldest, MAX(at) AS newest
FROM (SELECT id, at FROM audit WHERE id > :after ORDER BY id LIMIT :limit) AS page

-- name: prune_audit
-- Delete the records of a page that are too old.
DELETE FROM audit WHERE id > :after AND id <= :last AND at < :before RETURNING id

-- name: prune_blob_references
-- Forget references to files that are too old, but for those of sessions with a reply that is still to be sent, or may be sent
-- again. A file to which nothing else refers is removed later.
DELETE FROM blob_references
WHERE (digest, session_id) IN (
    SELECT digest, session_id FROM blob_references
    WHERE created_at < :before
      AND session_id NOT IN (
        SELECT session_id FROM outbox CROSS JOIN turns  -- in this order: SQLite would read all turns first
        WHERE turns.id = outbox.turn_id AND outbox.state IN ('pending', 'sending'))
      AND session_id NOT IN (
        SELECT turns.session_id FROM dead CROSS JOIN outbox CROSS JOIN turns
        WHERE dead.state = 'open' AND outbox.id = CASE WHEN dead.kind = 'reply' THEN CAST(dead.ref AS BIGINT) END
          AND turns.id = outbox.turn_id)
    ORDER BY created_at LIMIT :limit)
RETURNING digest

-- name: superseded_rows
-- Rows that left their conversation and are too old.
SELECT session_id, n FROM messages WHERE active = 0 AND created_at < :before ORDER BY created_at LIMIT :limit

-- name: expired_session
-- The session that ended first, if that is too long ago and nobody is to look through it for notes any more, or nobody looks (`noted`
-- is 0). One with a reply that is still to be sent, or may be sent again, stays: the reply's files belong to it.
SELECT id, version, {{indexed}} AS indexed FROM sessions
WHERE ended_at IS NOT NULL AND ended_at < :before
  AND (CAST(:noted AS INTEGER) = 0
       OR NOT EXISTS (SELECT 1 FROM flushes WHERE flushes.session_id = sessions.id AND flushes.state = 'due'))
  AND id NOT IN (
    SELECT session_id FROM outbox CROSS JOIN turns WHERE turns.id = outbox.turn_id AND outbox.state IN ('pending', 'sending'))
  AND id NOT IN (
    SELECT turns.session_id FROM dead CROSS JOIN outbox CROSS JOIN turns
    WHERE dead.state = 'open' AND outbox.id = CASE WHEN dead.kind = 'reply' THEN CAST(dead.ref AS BIGINT) END
      AND turns.id = outbox.turn_id)
ORDER BY ended_at LIMIT 1

-- name: session_rows
-- The first rows of a session.
SELECT session_id, n FROM messages WHERE session_id = :session_id ORDER BY n LIMIT :limit

-- name: delete_rows
-- Delete rows of transcripts.
DELETE FROM messages
WHERE (session_id, n) IN (SELECT value ->> 'session_id', CAST(value ->> 'n' AS BIGINT) FROM {{each}}(:rows))

-- name: hold_ended_session
-- Take hold of a session that is still too long ended, so that nobody resumes it before this transaction is over.
UPDATE sessions SET ended_at = ended_at WHERE id = :session_id AND ended_at < :before

-- name: delete_ended_rows
-- Delete rows of a session, unless somebody has resumed it.
DELETE FROM messages
WHERE (session_id, n) IN (SELECT value ->> 'session_id', CAST(value ->> 'n' AS BIGINT) FROM {{each}}(:rows))
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND ended_at < :before)

-- name: delete_ended_session
-- Delete a session without rows that no turn and no indexer has moved on since it was read, and that nobody has resumed.
DELETE FROM sessions
WHERE id = :session_id AND version = :version AND {{indexed}} = :indexed AND ended_at < :before
  AND NOT EXISTS (SELECT 1 FROM messages WHERE session_id = :session_id)

-- name: indexed_page
-- The next rows of the search index, with the time at which they were said.
-- [sqlite]
SELECT search_rows.id AS place, search_rows.session_id, search_rows.n, messages.created_at
FROM search_rows CROSS JOIN messages  -- in this order: SQLite would read all messages first
WHERE messages.session_id = search_rows.session_id AND messages.n = search_rows.n AND search_rows.id > :after ORDER BY search_rows.id LIMIT :limit

-- name: indexed_rows
-- Where some rows of transcripts are in the search index, with what they are found by.
-- [sqlite]
SELECT search_rows.id AS place, search_rows.session_id, search_rows.n, messages.text, sessions.owner, messages.created_at
FROM json_each(:rows)
JOIN search_rows ON search_rows.session_id = value ->> 'session_id' AND search_rows.n = CAST(value ->> 'n' AS BIGINT)
JOIN messages ON messages.session_id = search_rows.session_id AND messages.n = search_rows.n
JOIN sessions ON sessions.id = search_rows.session_id

-- name: unindex_grams
-- Remove the grams of a row from SQLite's index, unless somebody did: it keeps no text, so it is told what to remove.
-- [sqlite]
INSERT INTO search_grams (search_grams, rowid, grams)
SELECT 'delete', :place, :grams WHERE EXISTS (SELECT 1 FROM search_rows WHERE id = :place)

-- name: unindex_row
-- Remove a row from the search index.
-- [sqlite]
DELETE FROM search_rows WHERE id = :place

-- name: unindex_ended_grams
-- The same as unindex_grams, unless somebody has resumed the session.
-- [sqlite]
INSERT INTO search_grams (search_grams, rowid, grams)
SELECT 'delete', :place, :grams
WHERE EXISTS (SELECT 1 FROM search_rows JOIN sessions ON sessions.id = search_rows.session_id
              WHERE search_rows.id = :place AND sessions.ended_at < :before)

-- name: unindex_ended_row
-- The same as unindex_row, unless somebody has resumed the session.
-- [sqlite]
DELETE FROM search_rows
WHERE id = :place AND EXISTS (SELECT 1 FROM sessions WHERE sessions.id = search_rows.session_id AND sessions.ended_at < :before)

-- name: spans_page
-- The next spans of the search index, with the time at which the first of their rows was said. Without it: they have no rows.
-- [postgres]
SELECT search_spans.id AS place, first.created_at
FROM search_spans
LEFT JOIN LATERAL (
    SELECT created_at FROM messages
    WHERE session_id = search_spans.session_id AND n >= search_spans.since_n AND n <= search_spans.last_n
    ORDER BY n LIMIT 1) AS first ON true
WHERE search_spans.id > :after ORDER BY search_spans.id LIMIT :limit

-- name: forget_spans
-- Remove spans all of whose rows are too old. One that was changed meanwhile has another id.
-- [postgres]
DELETE FROM search_spans
WHERE id = ANY(CAST(:places AS BIGINT[])) AND NOT EXISTS (
    SELECT 1 FROM messages
    WHERE session_id = search_spans.session_id AND n >= search_spans.since_n AND n <= search_spans.last_n
      AND created_at >= :before)

-- name: shorten_spans
-- Let spans begin with the first of their rows that is not too old.
-- [postgres]
UPDATE search_spans
SET since_n = (
    SELECT MIN(n) FROM messages
    WHERE session_id = search_spans.session_id AND n >= search_spans.since_n AND n <= search_spans.last_n
      AND created_at >= :before)
WHERE id = ANY(CAST(:places AS BIGINT[]))

-- name: reopen_spans
-- Remove the spans that have some rows of transcripts, and all later ones of their sessions, so that what is left is indexed
-- anew. Sessions are locked first, as indexers do. The index of an older version just loses the rows.
-- [postgres]
WITH removed AS (
    SELECT value ->> 'session_id' AS session_id, CAST(value ->> 'n' AS BIGINT) AS n FROM jsonb_array_elements(:rows)),
held AS MATERIALIZED (
    SELECT id FROM sessions WHERE id IN (SELECT session_id FROM removed) ORDER BY id FOR NO KEY UPDATE),
older AS (
    DELETE FROM search_rows USING removed WHERE search_rows.session_id = removed.session_id AND search_rows.n = removed.n),
gone AS (
    DELETE FROM search_spans
    USING (SELECT held.id, MIN(removed.n) AS n FROM held JOIN removed ON removed.session_id = held.id GROUP BY held.id) AS first
    WHERE search_spans.session_id = first.id AND search_spans.last_n >= first.n
    RETURNING search_spans.session_id, search_spans.first_n)
UPDATE sessions SET indexed = again.first_n - 1
FROM (SELECT session_id, MIN(first_n) AS first_n FROM gone GROUP BY session_id) AS again
WHERE sessions.id = again.session_id AND sessions.indexed >= again.first_n

-- Deleting a conversation for good. Tables: all that hold words. The first statement deletes the session; each of the others
-- writes only where the session is gone.

-- name: delete_session
-- Delete a session that no turn and no indexer has moved on since it was read: the compare-and-set.
DELETE FROM sessions WHERE id = :session_id AND version = :version AND {{indexed}} = :indexed RETURNING id

-- name: delete_search
-- Remove its rows from the search index.
-- [sqlite]
DELETE FROM search_rows WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)
-- [postgres] Also from the index of an older version, whose grams are words.
WITH older AS (
    DELETE FROM search_rows WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id))
DELETE FROM search_spans WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_notes
-- Delete the notes that were made of it.
DELETE FROM notes WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_flushes
-- Take it off the queue of sessions to look through.
DELETE FROM flushes WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_dead
-- Delete the dead letters of its messages and its replies.
DELETE FROM dead
WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)
  AND (kind = 'inbound' AND ref IN (
          SELECT id FROM inbox WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id))
    OR kind = 'reply' AND ref IN (
          SELECT CAST(id AS TEXT) FROM outbox WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id)))

-- name: delete_outbox
-- Delete its replies, also those that are still to be sent.
DELETE FROM outbox
WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_inbox
-- Empty its inbounds. The rows stay, without words, so that a redelivery is still known.
UPDATE inbox SET payload = ''
WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_messages
-- Delete its transcript.
DELETE FROM messages WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_facts
-- Delete its facts.
DELETE FROM facts WHERE scope = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_steps
-- Delete what its unfinished turns have done so far.
DELETE FROM steps
WHERE run_id IN (SELECT id FROM runs WHERE session_id = :session_id)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_runs
-- Delete its unfinished turns themselves.
DELETE FROM runs WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_asks
-- Delete the questions that were asked in it.
DELETE FROM asks WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_blob_references
-- Delete its references to files: those to which nothing else refers are removed later.
DELETE FROM blob_references WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_tasks
-- Delete the background work that a key asked for while it talked in the session, and what that led to: it has the time of the
-- same message in `asked_at`. The conversation of each task is a session of its own.
DELETE FROM tasks
WHERE root_key = :session_key AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)
  AND asked_at IN (
    SELECT asked_at FROM tasks WHERE root_key = :session_key AND depth = 1 AND created_at BETWEEN :since AND :until)

-- name: delete_keys
-- The keys that talked in a session, or would, and when; `stays`: the key would go on there. Turns may be gone: what the session
-- says of itself stays.
SELECT session_key, MIN(since) AS since, MAX(until) AS until,
       EXISTS (SELECT 1 FROM routes WHERE routes.session_key = talked.session_key AND routes.session_id = :session_id) AS stays
FROM (SELECT session_key, claimed_at AS since, committed_at AS until FROM turns WHERE session_id = :session_id
      UNION ALL SELECT session_key, created_at, updated_at FROM sessions WHERE id = :session_id
      UNION ALL SELECT routes.session_key, sessions.created_at, updated_at FROM routes JOIN sessions ON sessions.id = session_id
                WHERE session_id = :session_id) AS talked
GROUP BY session_key

-- name: delete_key_dead
-- Delete dead letters of a key, from the time that it talked in the session, whose messages no turn has, or whose replies are
-- gone.
DELETE FROM dead
WHERE session_key = :session_key AND created_at BETWEEN :since AND :until
  AND (kind IN ('inbound', 'mail') AND NOT EXISTS (
          SELECT 1 FROM inbox WHERE inbox.id = dead.ref
            AND (state = 'pending' OR EXISTS (SELECT 1 FROM turns WHERE turns.id = inbox.turn_id)))
    OR kind = 'reply' AND NOT EXISTS (
          SELECT 1 FROM outbox WHERE outbox.id = CASE WHEN dead.kind = 'reply' THEN CAST(dead.ref AS BIGINT) END))
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_key_inbox
-- Empty inbounds of a key, from the time that it talked in the session, that an operator ended: no turn has them.
UPDATE inbox SET payload = ''
WHERE session_key = :session_key AND finished_at BETWEEN :since AND :until
  AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = inbox.turn_id)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_key_outbox
-- Delete what the chat was told of such inbounds.
DELETE FROM outbox
WHERE session_key = :session_key AND created_at BETWEEN :since AND :until
  AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = outbox.turn_id)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_control_dead
-- Delete the dead letters of a key's control messages and of the answers to them. Found by the rows of outbox and inbox.
DELETE FROM dead
WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)
  AND (kind IN ('inbound', 'mail') AND session_key = :control_key
    OR kind = 'reply' AND ref IN (
          SELECT CAST(id AS TEXT) FROM outbox WHERE turn_id IN (SELECT turn_id FROM inbox WHERE session_key = :control_key)))

-- name: delete_control_outbox
-- Delete the answers to a key's control messages, also those that are still to be sent.
DELETE FROM outbox
WHERE turn_id IN (SELECT turn_id FROM inbox WHERE session_key = :control_key)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: delete_control_inbox
-- Empty a key's control messages that have ended.
UPDATE inbox SET payload = ''
WHERE session_key = :control_key AND state <> 'pending' AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: search_far
-- How far a session is indexed for search.
SELECT {{indexed}} AS indexed FROM sessions WHERE id = :session_id

-- name: delete_grams_rows
-- The indexed rows of a session with the text and the owner that their grams are made from.
-- [sqlite]
SELECT search_rows.id AS place, search_rows.session_id, messages.text, sessions.owner
FROM search_rows
JOIN sessions ON sessions.id = search_rows.session_id
JOIN messages ON messages.session_id = search_rows.session_id AND messages.n = search_rows.n
WHERE search_rows.session_id = :session_id

-- name: delete_grams
-- Remove the grams of a row from the index. It keeps no text, so it has to be given what it is to remove.
-- [sqlite]
INSERT INTO search_grams (search_grams, rowid, grams)
SELECT 'delete', :place, :grams WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- name: search_size
-- How many pages the search index has, and of how many parts it consists.
-- [sqlite]
SELECT (SELECT COUNT(*) FROM search_grams_data) AS pages, (SELECT COUNT(DISTINCT segid) FROM search_grams_idx) AS segments

-- name: search_merge
-- Merge parts of the search index, so many pages of them. Deleted grams are left out.
-- [sqlite]
INSERT INTO search_grams (search_grams, rank) VALUES ('merge', :pages)

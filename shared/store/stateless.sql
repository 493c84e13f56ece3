-- Stateless requests, which are forgotten when they have ended. Tables: inbox, outbox, sessions, routes, facts. Each statement
-- writes only where a commit has left the fact that the message is to be forgotten; the last one removes the fact.

-- name: stateless_ended
-- The messages that are to be forgotten and ended before a given time.
SELECT name FROM facts WHERE scope = 'stateless' AND CAST(value AS BIGINT) <= :before ORDER BY name LIMIT :limit

-- name: stateless_outbox
-- Delete what was answered. What the turn said in a chat elsewhere is that chat's, and stays until it is sent.
DELETE FROM outbox
WHERE turn_id = (SELECT turn_id FROM inbox WHERE inbox.id = :id)
  AND (state IN ('sent', 'buried') OR platform = (SELECT platform FROM inbox WHERE inbox.id = :id))
  AND EXISTS (SELECT 1 FROM facts WHERE scope = 'stateless' AND name = :id)

-- name: stateless_facts
-- Delete the facts of its session.
DELETE FROM facts
WHERE scope = (SELECT session_id FROM turns WHERE id = (SELECT turn_id FROM inbox WHERE id = :id))
  AND EXISTS (SELECT 1 FROM facts AS ended WHERE ended.scope = 'stateless' AND ended.name = :id)

-- name: stateless_session
-- Delete its session, in which nothing was ever written.
DELETE FROM sessions
WHERE id = (SELECT session_id FROM turns WHERE turns.id = (SELECT turn_id FROM inbox WHERE inbox.id = :id)) AND message_count = 0
  AND EXISTS (SELECT 1 FROM facts WHERE scope = 'stateless' AND name = :id)

-- name: stateless_route
-- Delete the way to its session.
DELETE FROM routes
WHERE session_key = (SELECT session_key FROM inbox WHERE inbox.id = :id)
  AND EXISTS (SELECT 1 FROM facts WHERE scope = 'stateless' AND name = :id)

-- name: stateless_inbox
-- Empty the message. The row stays, without words, so that a redelivery is still known.
UPDATE inbox SET payload = ''
WHERE id = :id AND state <> 'pending' AND EXISTS (SELECT 1 FROM facts WHERE scope = 'stateless' AND name = :id)

-- name: stateless_done
-- It is forgotten.
DELETE FROM facts WHERE scope = 'stateless' AND name = :id

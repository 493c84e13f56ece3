-- Sessions as lists and operators read them. Tables: sessions, routes, messages, turns. Nothing is written here.

-- name: session_by_key
-- The session that a key talks to.
SELECT sessions.id, sessions.session_key, version, message_count, sessions.created_at, updated_at, title, parent_id,
       ended_at, end_reason
FROM routes JOIN sessions ON sessions.id = routes.session_id WHERE routes.session_key = :session_key

-- name: session_by_id
-- One session.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason
FROM sessions WHERE id = :session_id

-- name: sessions_listed
-- Conversations by last activity, each with its first words. Goes by index, whatever the length of the transcripts.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason,
       COALESCE(
           (SELECT SUBSTR(text, 1, 500) FROM messages
            WHERE session_id = sessions.id AND n <= 20 AND active = 1 AND role = 'user'
              AND data NOT LIKE '%"command":%' AND data NOT LIKE '%"hidden":%'
            ORDER BY n LIMIT 1),
           (SELECT SUBSTR(text, 1, 500) FROM messages
            WHERE session_id = sessions.id AND n <= 20 AND active = 1 AND role = 'assistant'
              AND data NOT LIKE '%"command":%' AND data NOT LIKE '%"hidden":%'
            ORDER BY n LIMIT 1)) AS preview
FROM sessions WHERE updated_at >= :since ORDER BY updated_at DESC LIMIT :limit

-- name: messages_of_session
-- The end of a transcript, newest first, with rows that left the conversation.
SELECT n, role, text, data, turn_id, inbound_id, active, created_at FROM messages
WHERE session_id = :session_id ORDER BY n DESC LIMIT :limit

-- name: turn_by_id
-- One turn.
SELECT id, session_id, version, outcome, attempts, worker, claimed_at, started_at, committed_at
FROM turns WHERE id = :turn_id

-- name: export_sessions
-- Sessions by id, a page at a time.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason
FROM sessions WHERE id > :after ORDER BY id LIMIT :limit

-- name: export_messages
-- A transcript after a given row, oldest first, a page at a time.
SELECT n, role, text, data, turn_id, inbound_id, active, created_at FROM messages
WHERE session_id = :session_id AND n > :after ORDER BY n LIMIT :limit

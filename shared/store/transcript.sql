-- What a turn reads. Tables: routes, sessions, messages, facts, inbox, known_messages, runs, outbox, notes. Nothing is written here.

-- name: load
-- The session that a key talks to with its facts and the end of its transcript, and how far an inbound has come. The
-- transcript is left out where the session's last turn is `left_by`: the caller knows that one's end. `has_run`: an attempt at
-- the inbound has called tools. `has_draft`: one has begun to show its answer. `notes_of` and `homes` are NULL for a turn whose
-- model is told neither notes nor home channels: then nothing is looked up.
SELECT routes.session_id, routes.done_seq, sessions.version, sessions.turn_id, sessions.message_count,
       sessions.updated_at, sessions.owner,
       CASE WHEN sessions.turn_id = :left_by THEN NULL ELSE (
           SELECT CAST({{json_list}}({{json_row}}(role, text, data, inbound_id)) AS TEXT) FROM (
               SELECT role, text, data, inbound_id FROM messages
               WHERE session_id = routes.session_id AND active = 1
               ORDER BY n DESC LIMIT :limit
           ) AS newest
       ) END AS rows,
       (SELECT CAST({{json_object}}(name, value) AS TEXT) FROM facts WHERE scope = routes.session_id) AS facts,
       (SELECT CAST({{json_list}}(text) AS TEXT) FROM (
           SELECT text FROM notes WHERE owner = :notes_of ORDER BY id DESC LIMIT :notes_limit
       ) AS noted) AS notes,
       (SELECT CAST({{json_object}}(name, value) AS TEXT) FROM facts WHERE scope = :homes) AS homes,
       COALESCE(inbox.state, (
           SELECT COALESCE(state, 'answered') FROM known_messages WHERE digest = message_digest(:id))) AS state, inbox.attempts, {{now_ms}} - inbox.outage_since AS outage_ms,
       EXISTS (SELECT 1 FROM runs WHERE runs.id = 'run_' || :id) AS has_run,
       EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = 'draft_' || :id) AS has_draft
FROM (SELECT 1) AS always
LEFT JOIN routes ON routes.session_key = :session_key
LEFT JOIN sessions ON sessions.id = routes.session_id
LEFT JOIN inbox ON inbox.id = :id

-- name: load_bare
-- The session that a key talks to, as a commit needs it: no transcript, no facts.
SELECT routes.session_id, routes.done_seq, COALESCE(sessions.version, 0) AS version,
       COALESCE(sessions.message_count, 0) AS message_count, COALESCE(sessions.updated_at, 0) AS updated_at, sessions.owner
FROM routes LEFT JOIN sessions ON sessions.id = routes.session_id
WHERE routes.session_key = :session_key

-- name: load_window
-- The end of a key's transcript before a given row, newest first, as one JSON text. Goes by index, whatever its length.
SELECT CAST({{json_list}}({{json_row}}(role, text, data, inbound_id)) AS TEXT) AS rows
FROM (
    SELECT role, text, data, inbound_id FROM messages
    WHERE session_id = (SELECT session_id FROM routes WHERE session_key = :session_key) AND active = 1 AND n < :before
    ORDER BY n DESC LIMIT :limit
) AS newest

-- name: last_user_row
-- The user's last row that is no command, and how many rows of the conversation there are from it on.
SELECT n, text, data, (SELECT COUNT(*) FROM messages AS later
                 WHERE later.session_id = messages.session_id AND later.n >= messages.n AND later.active = 1
                   AND later.data NOT LIKE '%"command":%') AS rows_from_here
FROM messages
WHERE session_id = :session_id AND active = 1 AND role = 'user' AND data NOT LIKE '%"command":%'
ORDER BY n DESC LIMIT 1

-- name: first_user_rows
-- The user's first rows that are no commands, oldest first.
SELECT n, text FROM messages
WHERE session_id = :session_id AND active = 1 AND role = 'user' AND data NOT LIKE '%"command":%'
ORDER BY n LIMIT :limit

-- name: rows_to_compress
-- The rows of a conversation in a range, oldest first: those that the summary does not have yet.
SELECT n, role, text, data, inbound_id FROM messages
WHERE session_id = :session_id AND active = 1 AND n > :after AND n <= :until
ORDER BY n LIMIT :limit

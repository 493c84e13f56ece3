-- What the database has of one person. All tables. These statements read whole tables: they are for an operator who was asked to
-- forget somebody, or to hand over what is kept of them. Patterns find too much; the caller decides row by row.

-- name: owned_by
-- Sessions whose owner may be the person.
SELECT id, session_key, version, message_count, owner, created_at, updated_at, title, parent_id, ended_at, end_reason
FROM sessions WHERE owner LIKE :pattern ESCAPE '!' ORDER BY id

-- name: sessions_of_keys
-- The sessions of some keys.
SELECT id, session_key, version, message_count, owner, created_at, updated_at, title, parent_id, ended_at, end_reason
FROM sessions WHERE session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys)) ORDER BY id

-- name: keys_of_sessions
-- The keys that talked, or would talk, in some sessions.
SELECT session_key FROM turns WHERE session_id IN (SELECT value ->> 'id' FROM {{each}}(:sessions))
UNION SELECT session_key FROM routes WHERE session_id IN (SELECT value ->> 'id' FROM {{each}}(:sessions))
UNION SELECT session_key FROM sessions WHERE id IN (SELECT value ->> 'id' FROM {{each}}(:sessions))

-- name: keys_like
-- The keys of conversations that name an id.
SELECT session_key FROM routes WHERE session_key LIKE :pattern ESCAPE '!'

-- name: keys_of_chat
-- The keys of private chats that name an id, with the owners of their sessions and what of their messages is kept.
SELECT routes.session_key, sessions.owner, inbox.payload FROM routes
LEFT JOIN sessions ON sessions.session_key = routes.session_key
LEFT JOIN inbox ON inbox.session_key = routes.session_key AND inbox.payload <> ''
WHERE routes.session_key LIKE :pattern ESCAPE '!'

-- name: tasks_like
-- Background work that the person may have asked for, or that began in some keys.
SELECT id, parent_key, root_key, owner, asked_by FROM tasks
WHERE asked_by LIKE :pattern ESCAPE '!' OR root_key IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: asks_like
-- Questions to the person, which have ended, in conversations of several.
SELECT id, source FROM asks WHERE state <> 'open' AND source LIKE :pattern ESCAPE '!'

-- name: paired_ids
-- The two ids of a person who was let in by a code.
SELECT user_id, user_alt FROM paired WHERE platform = :platform AND (user_id = :id OR user_alt = :id)
UNION SELECT user_id, user_alt FROM pairing_requests WHERE platform = :platform AND (user_id = :id OR user_alt = :id)

-- name: rows_by_sender
-- Rows of transcripts whose marks may name the person, after a given one.
SELECT messages.session_id, messages.n, messages.role, messages.text, messages.data, messages.created_at,
       sessions.session_key, sessions.owner, sessions.version
FROM messages JOIN sessions ON sessions.id = messages.session_id
WHERE messages.role = 'user' AND messages.data LIKE :pattern ESCAPE '!'
ORDER BY messages.session_id, messages.n

-- name: rows_of_sessions
-- What users said in some sessions.
SELECT sessions.session_key, messages.text, messages.data FROM messages JOIN sessions ON sessions.id = messages.session_id
WHERE messages.role = 'user' AND sessions.id IN (SELECT value ->> 'id' FROM {{each}}(:sessions))

-- name: rows_with_quotes
-- Rows of transcripts that may quote the person: they name the id, or do not say whom they quote.
SELECT messages.session_id, messages.n, messages.data, sessions.session_key, sessions.version
FROM messages JOIN sessions ON sessions.id = messages.session_id
WHERE messages.role = 'user' AND messages.data LIKE '%"earlier":%'
  AND (messages.data LIKE :pattern ESCAPE '!' OR messages.data NOT LIKE '%"earlier_by":%')
ORDER BY messages.session_id, messages.n

-- name: inbox_with_quotes
-- Ended messages that may quote the person, or answer a message of theirs.
SELECT id, session_key, payload FROM inbox
WHERE state <> 'pending'
  AND (payload LIKE :pattern ESCAPE '!' OR payload LIKE '%"earlier":%' AND payload NOT LIKE '%"earlier_by":%')

-- name: letters_with_quotes
-- The same of dead letters.
SELECT id, session_key, payload FROM dead
WHERE payload LIKE :pattern ESCAPE '!' OR payload LIKE '%"earlier":%' AND payload NOT LIKE '%"earlier_by":%'

-- name: inbox_like
-- Journaled messages that may come from the person, or belong to some keys.
SELECT id, session_key, payload, state, turn_id FROM inbox
WHERE payload LIKE :pattern ESCAPE '!' OR session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: note_owners
-- Whose notes there are.
SELECT DISTINCT owner FROM notes WHERE owner LIKE :pattern ESCAPE '!'

-- name: notes_of_owners
-- The notes of some owners, and those that were made of some sessions.
SELECT id, owner, text, session_id, created_at FROM notes
WHERE owner IN (SELECT value ->> 'key' FROM {{each}}(:keys)) OR session_id IN (SELECT value ->> 'id' FROM {{each}}(:sessions))
ORDER BY id

-- name: schedules_like
-- Schedules of owners that may be the person.
SELECT id, name, owner, rule, text, targets, created_at FROM schedules WHERE owner LIKE :pattern ESCAPE '!' ORDER BY id

-- name: usage_like
-- What owners that may be the person have spent.
SELECT session_id, owner, agent, model, day, requests, total, cost_nano FROM usage
WHERE owner LIKE :pattern ESCAPE '!' ORDER BY day

-- name: pairing_of
-- How the person was let in.
SELECT platform, user_id, user_alt, user_name, approved_by, approved_at FROM paired
WHERE platform = :platform AND (user_id = :id OR user_alt = :id)

-- name: blobs_of_sessions
-- The files that some sessions refer to.
SELECT DISTINCT digest FROM blob_references WHERE session_id IN (SELECT value ->> 'id' FROM {{each}}(:sessions))

-- name: letters_like
-- Dead letters that may hold words of the person, or belong to some keys.
SELECT id, session_key, payload FROM dead
WHERE payload LIKE :pattern ESCAPE '!' OR session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: parts_like
-- Parts of replies that have ended and may answer the person.
SELECT id, payload FROM outbox WHERE state IN ('sent', 'buried') AND payload LIKE :pattern ESCAPE '!'

-- name: audit_with_keys
-- Actions of operators that may name a key or a chat: as what they were done to, or in how they failed.
SELECT id, target, outcome FROM audit WHERE target LIKE '%:%:%' OR outcome LIKE 'failed:%'

-- name: kept_inbounds
-- Some messages with their words, as far as those are kept.
SELECT id, state, received_at, payload FROM inbox
WHERE id IN (SELECT value ->> 'id' FROM {{each}}(:rows)) AND payload <> '' ORDER BY received_at, id

-- name: kept_parts
-- The parts of replies to some keys.
SELECT id, destination, state, created_at, payload FROM outbox
WHERE session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys)) ORDER BY id

-- name: kept_letters
-- Some dead letters with what they hold.
SELECT id, kind, reason, detail, state, created_at, payload FROM dead
WHERE id IN (SELECT CAST(value ->> 'id' AS BIGINT) FROM {{each}}(:rows)) ORDER BY id

-- name: kept_tasks
-- Some background tasks.
SELECT id, name, text, state, created_at FROM tasks
WHERE id IN (SELECT value ->> 'id' FROM {{each}}(:rows)) ORDER BY created_at, id

-- name: kept_asks
-- Questions that were asked in some keys, or may have been asked the person in conversations of several.
SELECT id, session_key, source, text, choices, state, answer, created_at FROM asks
WHERE session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys)) OR source LIKE :pattern ESCAPE '!' ORDER BY created_at, id

-- name: forget_session_turns
-- Delete the records of the turns of some sessions, and of some keys.
DELETE FROM turns
WHERE session_id IN (SELECT value ->> 'id' FROM {{each}}(:sessions))
   OR session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: unquote_rows
-- Write some rows without what they quote, if the session was signed.
UPDATE messages SET data = value ->> 'data'
FROM {{each}}(:rows)
WHERE messages.session_id = :session_id AND messages.n = CAST(value ->> 'n' AS BIGINT)
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND turn_id = :turn_id)

-- name: unquote_inbox
-- Write some messages that have ended without what they quote, as far as their words are still kept.
UPDATE inbox SET payload = value ->> 'payload'
FROM {{each}}(:rows) WHERE inbox.id = value ->> 'id' AND inbox.state <> 'pending' AND inbox.payload <> ''

-- name: unquote_letters
-- Write some dead letters without what they quote.
UPDATE dead SET payload = value ->> 'payload' FROM {{each}}(:rows) WHERE dead.id = CAST(value ->> 'id' AS BIGINT)

-- name: note_files
-- Note that some files are to be removed.
INSERT INTO facts (scope, name, value)
SELECT 'forgetting', value ->> 'digest', :at FROM {{each}}(:files) WHERE true
ON CONFLICT (scope, name) DO NOTHING

-- name: noted_files
-- The files that are to be removed.
SELECT name AS digest, value AS since FROM facts WHERE scope = 'forgetting'

-- name: forget_noted_files
-- Forget that some files are to be removed.
DELETE FROM facts WHERE scope = 'forgetting' AND name IN (SELECT value ->> 'digest' FROM {{each}}(:files))

-- name: forget_inbox
-- Empty some messages that have ended. What stays is an id that nobody can read, so that a redelivery is still known.
UPDATE inbox SET payload = '', event_id = '', session_key = 'forgotten', reason = NULL
WHERE id IN (SELECT value ->> 'id' FROM {{each}}(:rows)) AND state <> 'pending'

-- name: forget_known_messages
-- Take the keys of some conversations off messages that have left the journal. What stays is a digest that nobody can read.
UPDATE known_messages SET session_key = NULL, reason = NULL WHERE session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: forget_key_outbox
-- Delete the replies to some keys.
DELETE FROM outbox WHERE session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: forget_turn_outbox
-- Delete the replies of some turns, also those that are still to be sent, unless a turn answers others' messages too.
DELETE FROM outbox
WHERE turn_id IN (SELECT value ->> 'id' FROM {{each}}(:rows))
  AND (state NOT IN ('pending', 'sending') OR NOT EXISTS (
        SELECT 1 FROM inbox
        WHERE inbox.turn_id = outbox.turn_id AND inbox.id NOT IN (SELECT value ->> 'id' FROM {{each}}(:messages))))

-- name: forget_parts
-- Delete some parts of replies that have ended.
DELETE FROM outbox
WHERE id IN (SELECT CAST(value ->> 'id' AS BIGINT) FROM {{each}}(:rows)) AND state IN ('sent', 'buried')

-- name: forget_routes
-- Delete the ways of some keys to their sessions, unless a message has come since.
DELETE FROM routes
WHERE session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys))
  AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.session_key = routes.session_key AND inbox.state = 'pending')

-- name: forget_key_asks
-- Delete the questions that were asked in some keys.
DELETE FROM asks WHERE session_key IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: forget_shared_asks
-- Delete some questions.
DELETE FROM asks WHERE id IN (SELECT value ->> 'id' FROM {{each}}(:rows))

-- name: forget_person_tasks
-- Delete some background tasks. Their conversations are sessions of their own.
DELETE FROM tasks WHERE id IN (SELECT value ->> 'id' FROM {{each}}(:rows))

-- name: forget_task_stops
-- Delete when some keys were told to stop.
DELETE FROM task_stops WHERE root_key IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: facts_of_chats
-- Facts that name a key or a chat: that keys talk in sessions of others, how far their mail has ended there, home channels.
SELECT scope, name, value FROM facts
WHERE scope IN ('homes', 'ending') OR name LIKE 'joined:%' OR name LIKE 'merged!_ahead:%' ESCAPE '!'

-- name: forget_facts
-- Delete some facts.
DELETE FROM facts WHERE (scope, name) IN (SELECT value ->> 'scope', value ->> 'name' FROM {{each}}(:rows))

-- name: closed_like
-- Closed chats whose destination may name the person.
SELECT destination FROM closed_chats WHERE destination LIKE :pattern ESCAPE '!'

-- name: forget_closed_chats
-- Delete that some chats take nothing from us.
DELETE FROM closed_chats WHERE destination IN (SELECT value ->> 'key' FROM {{each}}(:chats))

-- name: forget_letters
-- Delete some dead letters.
DELETE FROM dead WHERE id IN (SELECT CAST(value ->> 'id' AS BIGINT) FROM {{each}}(:rows))

-- name: forget_audit
-- Replace what some actions of operators say, unless one has ended since it was read.
UPDATE audit SET target = value ->> 'target', outcome = value ->> 'outcome'
FROM {{each}}(:rows) WHERE audit.id = CAST(value ->> 'id' AS BIGINT) AND audit.outcome = value ->> 'was'

-- name: forget_notes
-- Delete the notes of some owners.
DELETE FROM notes WHERE owner IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: forget_schedules
-- Delete some schedules.
DELETE FROM schedules WHERE id IN (SELECT value ->> 'id' FROM {{each}}(:rows))

-- name: forget_fires
-- Delete the slots of some schedules.
DELETE FROM schedule_fires WHERE schedule_id IN (SELECT value ->> 'id' FROM {{each}}(:rows))

-- name: forget_usage
-- Delete what some owners have spent.
DELETE FROM usage WHERE owner IN (SELECT value ->> 'key' FROM {{each}}(:keys))

-- name: forget_codes
-- Delete the parts that told the person a code.
DELETE FROM outbox WHERE turn_id IN (
    SELECT 'pair_' || salt FROM pairing_requests WHERE platform = :platform AND (user_id = :id OR user_alt = :id))

-- name: forget_requests
-- Delete the person's requests for a code.
DELETE FROM pairing_requests WHERE platform = :platform AND (user_id = :id OR user_alt = :id)

-- name: forget_pairing
-- Delete that the person was let in by a code.
DELETE FROM paired WHERE platform = :platform AND (user_id = :id OR user_alt = :id)

-- name: called
-- The title of a session, and its goal.
SELECT (SELECT title FROM sessions WHERE id = :session_id) AS title,
       (SELECT value FROM facts WHERE scope = :session_id AND name = 'goal') AS goal,
       (SELECT value FROM facts WHERE scope = :session_id AND name = 'thread_goal') AS old_goal

-- name: sign_session
-- The compare-and-set of a session whose rows are to be changed: no turn has moved it on since it was read and,
-- with `seen`, its title is what was read. Takes a title away.
UPDATE sessions
SET version = version + 1, turn_id = :turn_id, title = CASE WHEN title = CAST(:title AS TEXT) THEN NULL ELSE title END
WHERE id = :session_id AND version = :version AND COALESCE(title, '') = COALESCE(CAST(:seen AS TEXT), title, '')
RETURNING id

-- name: forget_goal
-- Forget the goal of a session, if it was signed.
DELETE FROM facts
WHERE scope = :session_id AND name IN ('goal', 'thread_goal')
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND turn_id = :turn_id)

-- name: blank_rows
-- Remove the words and the sender of some rows, if the session was signed.
UPDATE messages SET text = :text, data = '{}'
WHERE session_id = :session_id AND n IN (SELECT CAST(value ->> 'n' AS BIGINT) FROM {{each}}(:rows))
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND turn_id = :turn_id)

-- name: forget_shared_blob
-- Forget that a session refers to a file, if it was signed and no row of it names the file any more.
DELETE FROM blob_references
WHERE digest = :digest AND session_id = :session_id
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND turn_id = :turn_id)
  AND NOT EXISTS (SELECT 1 FROM messages WHERE session_id = :session_id AND data LIKE '%' || :digest || '%')

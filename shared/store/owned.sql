-- The sessions of an owner. Tables: sessions, messages. Nothing is written here.

-- name: sessions_of_owner
-- An owner's sessions except one, the last active first, each with its first words. Goes by index.
SELECT id, session_key, title, message_count, created_at, updated_at,
       (SELECT text FROM messages WHERE messages.session_id = sessions.id AND role = 'user' AND active = 1
          AND data NOT LIKE '%"command":%' ORDER BY n LIMIT 1) AS preview
FROM sessions
WHERE owner = :owner AND id <> :but AND (title IS NOT NULL OR (:untitled = 1 AND EXISTS (
        SELECT 1 FROM messages WHERE messages.session_id = sessions.id AND role = 'user' AND active = 1
          AND data NOT LIKE '%"command":%')))
  AND LOWER(COALESCE(title, '')) LIKE :pattern ESCAPE '!'
  AND SUBSTR(session_key || ':', 1, LENGTH(CAST(:place AS TEXT))) = CAST(:place AS TEXT)
ORDER BY updated_at DESC, id LIMIT :limit

-- name: sessions_of_all
-- Everybody's sessions, the last active first: all of them, or those that began in a given chat.
SELECT id, session_key, title, message_count, created_at, updated_at, NULL AS preview
FROM sessions
WHERE owner IS NOT NULL AND LOWER(COALESCE(title, '')) LIKE :pattern ESCAPE '!'
  AND SUBSTR(session_key || ':', 1, LENGTH(CAST(:place AS TEXT))) = CAST(:place AS TEXT)
ORDER BY updated_at DESC, id LIMIT :limit

-- name: session_of_owner
-- Sessions of an owner with a given id or title, or a title that continues it; and how many rows of conversation each has.
SELECT id, session_key, title, message_count, created_at, updated_at,
       (SELECT COUNT(*) FROM messages WHERE messages.session_id = sessions.id AND active = 1
          AND data NOT LIKE '%"command":%') AS rows_active
FROM sessions
WHERE owner = :owner
  AND (id = :wanted OR LOWER(title) = LOWER(CAST(:wanted AS TEXT))
       OR LOWER(title) LIKE LOWER(CAST(:numbered AS TEXT)) ESCAPE '!')
ORDER BY CASE WHEN id = :wanted THEN 0 ELSE 1 END, created_at DESC, updated_at DESC, id LIMIT 50

-- name: title_of_owner
-- Another session of an owner with a given title.
SELECT id FROM sessions
WHERE owner = :owner AND id <> :but AND LOWER(title) = LOWER(CAST(:title AS TEXT)) LIMIT 1

-- name: user_rows
-- How often the user spoke in a session, and the number of the row where they did so after `skip` others.
SELECT COUNT(*) AS spoken,
       (SELECT n FROM messages WHERE session_id = :session_id AND active = 1 AND role = 'user'
          AND data NOT LIKE '%"command":%' ORDER BY n LIMIT 1 OFFSET :skip) AS n
FROM messages WHERE session_id = :session_id AND active = 1 AND role = 'user' AND data NOT LIKE '%"command":%'

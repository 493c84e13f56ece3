-- Everybody's sessions, those first that were talked in last; all of them, or those that were begun in a given chat.
SELECT id, session_key, title, message_count, created_at, updated_at, NULL AS preview
FROM sessions
WHERE owner IS NOT NULL AND LOWER(COALESCE(title, '')) LIKE :pattern ESCAPE '!'
  AND SUBSTR(session_key || ':', 1, LENGTH(CAST(:place AS TEXT))) = CAST(:place AS TEXT)
ORDER BY updated_at DESC, id LIMIT :limit

-- Everybody's sessions, those first that were talked in last.
SELECT id, session_key, title, message_count, created_at, updated_at, NULL AS preview
FROM sessions
WHERE owner IS NOT NULL AND LOWER(COALESCE(title, '')) LIKE :pattern ESCAPE '!'
ORDER BY updated_at DESC, id LIMIT :limit

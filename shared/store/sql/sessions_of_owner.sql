-- An owner's sessions but one, those first that were talked in last, with the first words of each: by index, whatever there is.
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

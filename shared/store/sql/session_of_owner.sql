-- One session of an owner, by its id or by its title, and how many rows of conversation it holds.
SELECT id, session_key, title, message_count, created_at, updated_at,
       (SELECT COUNT(*) FROM messages WHERE messages.session_id = sessions.id AND active = 1
          AND data NOT LIKE '%"command":%') AS rows_active
FROM sessions
WHERE owner = :owner AND (id = :wanted OR LOWER(title) = LOWER(CAST(:wanted AS TEXT)))
ORDER BY CASE WHEN id = :wanted THEN 0 ELSE 1 END, updated_at DESC, id LIMIT 1

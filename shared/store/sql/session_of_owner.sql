-- Sessions of an owner, by id, by title, or by a title that goes on with a number; and how many rows of conversation each holds.
SELECT id, session_key, title, message_count, created_at, updated_at,
       (SELECT COUNT(*) FROM messages WHERE messages.session_id = sessions.id AND active = 1
          AND data NOT LIKE '%"command":%') AS rows_active
FROM sessions
WHERE owner = :owner
  AND (id = :wanted OR LOWER(title) = LOWER(CAST(:wanted AS TEXT)) OR LOWER(title) LIKE LOWER(CAST(:numbered AS TEXT)) ESCAPE '!')
ORDER BY CASE WHEN id = :wanted THEN 0 ELSE 1 END, created_at DESC, updated_at DESC, id LIMIT 50

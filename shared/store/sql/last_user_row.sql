-- The last thing that a user said and that was not a command, and how many rows of the conversation follow it.
SELECT n, text, (SELECT COUNT(*) FROM messages AS later
                 WHERE later.session_id = messages.session_id AND later.n >= messages.n AND later.active = 1
                   AND later.data NOT LIKE '%"command":%') AS rows_from_here
FROM messages
WHERE session_id = :session_id AND active = 1 AND role = 'user' AND data NOT LIKE '%"command":%'
ORDER BY n DESC LIMIT 1

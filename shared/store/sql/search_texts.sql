-- What a session's rows say, of those that people may find again: no commands, nothing undone, nothing of automation's.
SELECT n, text FROM messages
WHERE session_id = :session_id AND n > :after AND n <= :upto AND active = 1 AND role IN ('user', 'assistant')
  AND data NOT LIKE '%"command":%' AND data NOT LIKE '%"hidden":%'
ORDER BY n

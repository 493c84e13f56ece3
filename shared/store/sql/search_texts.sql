-- What the rows of some sessions say, of those that people may find again: no commands, nothing undone, nothing of automation's.
SELECT messages.session_id, messages.n, messages.text
FROM {{each}}(:sessions)
JOIN messages ON messages.session_id = value ->> 'id'
  AND messages.n > CAST(value ->> 'after' AS BIGINT) AND messages.n <= CAST(value ->> 'upto' AS BIGINT)
WHERE messages.active = 1 AND messages.role IN ('user', 'assistant')
  AND messages.data NOT LIKE '%"command":%' AND messages.data NOT LIKE '%"hidden":%'
ORDER BY messages.session_id, messages.n

-- Anybody's rows that are not indexed yet, for an operator.
SELECT 0 AS place, sessions.id AS session_id, sessions.session_key, sessions.title, sessions.updated_at,
       messages.n, messages.role, messages.text, messages.created_at
FROM sessions JOIN messages ON messages.session_id = sessions.id AND messages.n > sessions.searched
WHERE sessions.owner IS NOT NULL AND sessions.message_count > sessions.searched
  AND messages.active = 1 AND messages.role IN ('user', 'assistant')
  AND messages.data NOT LIKE '%"command":%' AND messages.data NOT LIKE '%"hidden":%'
LIMIT :limit

-- Sessions whose time to be looked at has come.
SELECT session_id, session_key, due_at FROM flushes
WHERE state = 'due' AND due_at <= :before ORDER BY due_at LIMIT :limit

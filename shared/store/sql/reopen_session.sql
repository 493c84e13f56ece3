-- A session goes on that had ended, if the session that its key leaves for it is ours.
UPDATE sessions SET ended_at = NULL, end_reason = NULL
WHERE id = :target AND EXISTS (SELECT 1 FROM {{ours}})

-- What was said in a session that is no more. What is still to be sent has been decided, and stays.
DELETE FROM outbox
WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id) AND state NOT IN ('pending', 'sending') AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

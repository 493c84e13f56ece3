-- What was said in a session that is no more, or was still to be said.
DELETE FROM outbox
WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

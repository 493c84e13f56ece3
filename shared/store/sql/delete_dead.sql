-- What was set aside of a session that is no more.
DELETE FROM dead
WHERE kind = 'inbound' AND ref IN (SELECT id FROM inbox WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id)) AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

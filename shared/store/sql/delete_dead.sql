-- What was set aside of a session that is no more: its messages and its replies.
DELETE FROM dead
WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)
  AND (kind = 'inbound' AND ref IN (
          SELECT id FROM inbox WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id))
    OR kind = 'reply' AND ref IN (
          SELECT CAST(id AS TEXT) FROM outbox WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id)))

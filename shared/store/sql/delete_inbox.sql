-- What came in for a session that is no more. The rows stay, without words: a redelivery must still be known.
UPDATE inbox SET payload = ''
WHERE turn_id IN (SELECT id FROM turns WHERE session_id = :session_id) AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)

-- Bring in what was said since the last import, if nobody has moved the session on in between: the compare-and-set.
UPDATE sessions
SET version = version + 1, turn_id = :turn_id, message_count = message_count + :added, updated_at = :updated_at,
    title = COALESCE(CAST(:title AS TEXT), title)
WHERE id = :session_id AND version = :version
RETURNING version

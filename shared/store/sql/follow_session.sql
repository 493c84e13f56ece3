-- The compare-and-set of a session whose chat has a new id.
UPDATE sessions SET version = version + 1, turn_id = :turn_id, session_key = :session_key
WHERE id = :session_id AND version = :version
RETURNING version

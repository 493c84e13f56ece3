-- A fact of an imported session, if it is signed by this import.
INSERT INTO facts (scope, name, value)
SELECT id, :fact, :value FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (scope, name) DO UPDATE SET value = excluded.value

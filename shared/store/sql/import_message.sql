-- A row of an imported transcript, if the session is signed by this import.
INSERT INTO messages (session_id, n, turn_id, role, text, data, active, created_at)
SELECT id, :n, turn_id, :role, :text, :data, :active, :created_at
FROM sessions WHERE id = :session_id AND turn_id = :turn_id

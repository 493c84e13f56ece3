-- Add a row to the transcript, if the session is ours.
INSERT INTO messages (session_id, n, turn_id, role, text, data, inbound_id, created_at)
SELECT :session_id, :n, :turn_id, :role, :text, :data, :inbound_id, :now
FROM {{ours}}

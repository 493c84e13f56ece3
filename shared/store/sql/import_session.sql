-- Bring a conversation in, unless it is here already. What follows in the list is written only where this turn signed it.
INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason, owner)
VALUES (:session_id, :session_key, 1, :turn_id, :added, :created_at, :updated_at, :title, :parent_id, :ended_at, :end_reason, :owner)
ON CONFLICT (id) DO NOTHING
RETURNING version

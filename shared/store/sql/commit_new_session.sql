-- [ours] The compare-and-set for a session that does not exist yet.
INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, title, ended_at, end_reason, owner)
VALUES (:session_id, :session_key, 1, :turn_id, :added, :now, :now, :title, :ended_at, :end_reason, :owner)
ON CONFLICT (id) DO NOTHING
RETURNING version

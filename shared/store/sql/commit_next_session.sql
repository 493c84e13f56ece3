-- Open the session that follows this one, if the session is ours.
INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, parent_id, owner)
SELECT :next_session_id, :session_key, 1, :turn_id, 0, :now, :now, :session_id, :owner
FROM {{ours}}

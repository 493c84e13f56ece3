-- Open a session that continues as another one stood, if the session is ours.
INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, parent_id, title, owner)
SELECT :branch_id, :session_key, 1, :turn_id, :rows, :now, :now, :session_id, :title, :owner
FROM {{ours}}

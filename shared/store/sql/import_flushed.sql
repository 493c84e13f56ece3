-- An imported session was looked at for what is worth keeping, if it is signed by this import.
INSERT INTO flushes (session_id, session_key, state, upto, tries, due_at, turn_id)
SELECT id, session_key, 'done', :upto, 0, 0, '' FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (session_id) DO UPDATE SET state = 'done', upto = excluded.upto

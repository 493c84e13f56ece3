-- A session that is over is to be looked at for what is worth keeping.
INSERT INTO flushes (session_id, session_key, state, upto, tries, due_at, turn_id)
VALUES (:session_id, :session_key, 'due', 0, 0, :now, '')
ON CONFLICT (session_id) DO UPDATE SET state = 'due', tries = 0, due_at = excluded.due_at
WHERE flushes.state <> 'due'

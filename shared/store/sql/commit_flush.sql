-- A session that ends is to be looked at for what is worth keeping, unless all of it was, if the session is ours.
INSERT INTO flushes (session_id, session_key, state, upto, tries, due_at, turn_id)
SELECT :session_id, :session_key, 'due', 0, 0, :now, ''
FROM {{ours}} WHERE true
ON CONFLICT (session_id) DO UPDATE SET state = 'due', tries = 0, due_at = excluded.due_at
WHERE flushes.state <> 'due' AND flushes.upto < :row_count

-- Let the new key talk to the session, if it is ours and the key has no conversation of its own yet.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT :session_key, id, 0, 0, :now FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (session_key) DO UPDATE SET session_id = excluded.session_id
WHERE NOT EXISTS (SELECT 1 FROM sessions AS own WHERE own.id = routes.session_id)
RETURNING session_key

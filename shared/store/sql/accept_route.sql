-- [numbered] Give the key its next number, unless this message was accepted before or the key has too much waiting.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT :session_key, :session_id, 1, 0, :now
WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE id = :id)
ON CONFLICT (session_key) DO UPDATE SET last_seq = routes.last_seq + 1
WHERE routes.last_seq - routes.done_seq < :mailbox_limit
RETURNING last_seq

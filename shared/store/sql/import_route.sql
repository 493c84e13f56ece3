-- Let the key talk to the imported session; not where it has a conversation of its own here, or mail that waits.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT :session_key, id, 0, 0, :created_at FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (session_key) DO UPDATE SET session_id = excluded.session_id
WHERE routes.last_seq = routes.done_seq
  AND EXISTS (SELECT 1 FROM sessions AS before WHERE before.id = routes.session_id AND before.turn_id LIKE 'import!_%' ESCAPE '!')
RETURNING session_key

-- Say how far the key has come, if the session is ours.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT :session_key, :session_id, :done_seq, :done_seq, :now
FROM {{ours}} WHERE true
ON CONFLICT (session_key) DO UPDATE
SET done_seq = CASE WHEN excluded.done_seq > routes.done_seq THEN excluded.done_seq ELSE routes.done_seq END

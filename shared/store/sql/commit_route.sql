-- Say how far the key has come, and to which session it talks from now on, if the session is ours.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT :session_key, :talks_to, :done_seq, :done_seq, :now
FROM {{ours}} WHERE true
ON CONFLICT (session_key) DO UPDATE
SET session_id = excluded.session_id,
    done_seq = CASE WHEN excluded.done_seq > routes.done_seq THEN excluded.done_seq ELSE routes.done_seq END

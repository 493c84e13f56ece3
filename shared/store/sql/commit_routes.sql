-- Say how far each key has come, and to which session it talks from now on, where the session is ours.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT value ->> 'session_key', value ->> 'talks_to', CAST(value ->> 'done_seq' AS BIGINT),
       CAST(value ->> 'done_seq' AS BIGINT), CAST(value ->> 'now' AS BIGINT)
FROM {{each}}(:turns) {{where_ours}} WHERE true
ON CONFLICT (session_key) DO UPDATE
SET session_id = excluded.session_id,
    done_seq = CASE WHEN excluded.done_seq > routes.done_seq THEN excluded.done_seq ELSE routes.done_seq END

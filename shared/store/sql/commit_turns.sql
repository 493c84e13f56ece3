-- Record the turns, where the session is ours.
INSERT INTO turns (id, session_id, session_key, version, outcome, attempts, worker, claimed_at, started_at, committed_at)
SELECT value ->> 'turn_id', value ->> 'session_id', value ->> 'session_key', ours.version, value ->> 'outcome',
       CAST(value ->> 'attempts' AS INTEGER), value ->> 'worker', CAST(value ->> 'claimed_at' AS BIGINT),
       CAST(value ->> 'started_at' AS BIGINT), CAST(value ->> 'now' AS BIGINT)
FROM {{each}}(:turns) {{where_ours}}

-- [ours] The compare-and-set for sessions that do not exist yet, while all of their mail waits.
INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, title, ended_at, end_reason, owner)
SELECT value ->> 'session_id', value ->> 'session_key', 1, value ->> 'turn_id', CAST(value ->> 'added' AS BIGINT),
       CAST(value ->> 'now' AS BIGINT), CAST(value ->> 'now' AS BIGINT), value ->> 'title',
       CAST(value ->> 'ended_at' AS BIGINT), value ->> 'end_reason', value ->> 'owner'
FROM {{each}}(:turns) AS turn
WHERE {{mail_waits}}
ON CONFLICT (id) DO NOTHING
RETURNING id, turn_id, version

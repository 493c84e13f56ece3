-- Write down inbounds that only Redis knew, already ended, where the session is ours. Their ids were never seen before.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, reason, attempts, turn_id, received_at, finished_at)
SELECT value ->> 'id', value ->> 'event_id', value ->> 'platform', value ->> 'session_key',
       CAST(value ->> 'seq' AS BIGINT), value ->> 'payload', value ->> 'state', value ->> 'reason',
       CAST(value ->> 'attempts' AS INTEGER), value ->> 'turn_id', CAST(value ->> 'received_at' AS BIGINT),
       CAST(value ->> 'now' AS BIGINT)
FROM {{each}}(:unjournaled) {{where_ours}}

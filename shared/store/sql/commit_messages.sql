-- Add rows to the transcripts, where the session is ours.
INSERT INTO messages (session_id, n, turn_id, role, text, data, inbound_id, created_at)
SELECT value ->> 'session_id', CAST(value ->> 'n' AS BIGINT), value ->> 'turn_id', value ->> 'role', value ->> 'text',
       value ->> 'data', value ->> 'inbound_id', CAST(value ->> 'now' AS BIGINT)
FROM {{each}}(:messages) {{where_ours}}

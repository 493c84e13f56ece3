-- [parts] Decide reply parts, where the session is ours. The parts of a turn are numbered in their order.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT value ->> 'idempotency_key', value ->> 'turn_id', CAST(value ->> 'ordinal' AS INTEGER), value ->> 'conversation',
       value ->> 'destination', value ->> 'platform', value ->> 'payload', 'pending', CAST(value ->> 'now' AS BIGINT)
FROM {{each}}(:outbox) {{where_ours}}
ORDER BY CAST(value ->> 'ordinal' AS INTEGER)
RETURNING id, turn_id

-- End journaled inbounds, where the session is ours.
UPDATE inbox
SET state = value ->> 'state', reason = value ->> 'reason', attempts = CAST(value ->> 'attempts' AS INTEGER),
    turn_id = value ->> 'turn_id', finished_at = CAST(value ->> 'now' AS BIGINT)
FROM {{each}}(:ended) {{where_ours}}
WHERE inbox.id = value ->> 'id'

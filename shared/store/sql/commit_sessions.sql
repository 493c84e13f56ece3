-- [ours] The compare-and-set: only who loaded this version may move a session on, while all of its mail waits.
UPDATE sessions
SET version = version + 1, turn_id = value ->> 'turn_id', updated_at = CAST(value ->> 'now' AS BIGINT),
    message_count = message_count + CAST(value ->> 'added' AS BIGINT), title = COALESCE(value ->> 'title', title),
    ended_at = CAST(value ->> 'ended_at' AS BIGINT), end_reason = value ->> 'end_reason',
    owner = COALESCE(owner, value ->> 'owner')
FROM {{each}}(:turns) AS turn
WHERE sessions.id = value ->> 'session_id' AND version = CAST(value ->> 'version' AS BIGINT)
  AND {{mail_waits}}
RETURNING sessions.id, turn_id, version

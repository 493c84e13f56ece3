-- [ours] The compare-and-set: only who loaded this version may move the session on.
UPDATE sessions
SET version = version + 1, turn_id = :turn_id, message_count = message_count + :added, updated_at = :now,
    title = COALESCE(CAST(:title AS TEXT), title),
    ended_at = CAST(:ended_at AS BIGINT), end_reason = CAST(:end_reason AS TEXT),
    owner = COALESCE(owner, CAST(:owner AS TEXT))
WHERE id = :session_id AND version = :version
RETURNING version

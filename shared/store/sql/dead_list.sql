-- What was set aside, newest first.
SELECT id, kind, ref, session_key, reason, detail, attempts, state, created_at FROM dead
WHERE state = :state ORDER BY id DESC LIMIT :limit

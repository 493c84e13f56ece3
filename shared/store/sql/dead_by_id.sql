-- One thing that was set aside, whole.
SELECT id, kind, ref, session_key, reason, detail, payload, attempts, state, created_at FROM dead WHERE id = :id

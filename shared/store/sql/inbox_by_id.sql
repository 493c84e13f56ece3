-- One inbound and where it stands.
SELECT id, event_id, platform, session_key, seq, payload, state, attempts, reason, turn_id, received_at, finished_at
FROM inbox WHERE id = :id

-- Write down a message that only Redis knew, already dropped. AlreadyDone if a turn ended it before.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, reason, attempts, turn_id, received_at, finished_at)
VALUES (:id, :event_id, :platform, :session_key, :seq, :payload, :state, :reason, :attempts, :turn_id, :received_at, :now)
RETURNING id

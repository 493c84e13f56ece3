-- Write down an inbound that only Redis knew, already ended, if the session is ours. Its id was never seen before.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, reason, attempts, turn_id, received_at, finished_at)
SELECT :id, :event_id, :platform, :session_key, :seq, :payload, :state, :reason, :attempts, :turn_id, :received_at, :now
FROM {{ours}}

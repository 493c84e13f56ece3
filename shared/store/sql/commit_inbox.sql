-- End a journaled inbound, if the session is ours.
UPDATE inbox
SET state = :state, reason = :reason, attempts = :attempts, turn_id = :turn_id, finished_at = :now
FROM {{ours}} WHERE id = :id

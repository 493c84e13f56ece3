-- End a journaled inbound, if the session is ours.
UPDATE inbox
SET state = :state, reason = :reason, attempts = :attempts, turn_id = :turn_id, finished_at = :now
WHERE id = :id AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND turn_id = :turn_id)

-- Say what became of a session that is to be looked at, if it is still as it was.
UPDATE flushes SET state = :state, upto = :upto
WHERE session_id = :session_id AND state = 'due'
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND version = :version)

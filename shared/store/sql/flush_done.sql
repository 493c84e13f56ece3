-- [flushed] A session has been looked at, if it is still as it was and this try is the last that began.
UPDATE flushes SET state = 'done', upto = :upto
WHERE session_id = :session_id AND state = 'due' AND turn_id = :turn_id
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND version = :version)
RETURNING session_id

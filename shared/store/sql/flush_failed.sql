-- Try again later.
UPDATE flushes SET due_at = :later
WHERE session_id = :session_id AND state = 'due' AND turn_id = :turn_id

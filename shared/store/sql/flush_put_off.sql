-- Look at a session later; of several that say so, one is heard.
UPDATE flushes SET due_at = :later
WHERE session_id = :session_id AND state = 'due' AND due_at = :due_at
RETURNING session_id

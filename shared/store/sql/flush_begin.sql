-- Count a try at a session before it begins.
UPDATE flushes SET tries = tries + 1, turn_id = :turn_id
WHERE session_id = :session_id AND state = 'due' AND tries < :try_limit
RETURNING tries

-- Record the move as a turn, if the session is ours.
INSERT INTO turns (id, session_id, session_key, version, outcome, attempts, worker, claimed_at, started_at, committed_at)
SELECT turn_id, id, session_key, version, 'moved', 0, 'follow', :now, :now, :now
FROM sessions WHERE id = :session_id AND turn_id = :turn_id

-- Record the turn, if the session is ours.
INSERT INTO turns (id, session_id, session_key, version, outcome, attempts, worker, claimed_at, started_at, committed_at)
SELECT :turn_id, :session_id, :session_key, ours.version, :outcome, :attempts, :worker, :claimed_at, :started_at, :now
FROM {{ours}}

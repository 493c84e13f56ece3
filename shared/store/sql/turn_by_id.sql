-- One turn.
SELECT id, session_id, version, outcome, attempts, worker, claimed_at, started_at, committed_at FROM turns WHERE id = :turn_id

-- The keys that talked in a session and when; `stays`: the key would go on there.
SELECT session_key, MIN(claimed_at) AS since, MAX(committed_at) AS until,
       EXISTS (SELECT 1 FROM routes WHERE routes.session_key = turns.session_key AND routes.session_id = :session_id) AS stays
FROM turns WHERE session_id = :session_id GROUP BY session_key

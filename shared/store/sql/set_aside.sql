-- Record something that could not be understood or delivered.
INSERT INTO dead (kind, ref, session_key, reason, detail, payload, attempts, state, created_at)
VALUES (:kind, :ref, :session_key, :reason, :detail, :payload, :attempts, 'open', :now)

-- Record something that could not be understood, delivered or taken in, once.
INSERT INTO dead (kind, ref, session_key, reason, detail, payload, attempts, state, created_at, once)
VALUES (:kind, :ref, :session_key, :reason, :detail, :payload, :attempts, 'open', :now, :once)
ON CONFLICT (once) DO NOTHING
RETURNING id

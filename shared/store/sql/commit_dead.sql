-- Set an inbound aside, if the session is ours.
INSERT INTO dead (kind, ref, session_key, reason, detail, payload, attempts, state, created_at)
SELECT 'inbound', :id, :session_key, :reason, :detail, :payload, :attempts, 'open', :now
FROM {{ours}}

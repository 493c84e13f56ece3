-- Its dead letter, if it was buried just now.
INSERT INTO dead (kind, ref, session_key, reason, detail, payload, attempts, state, created_at)
SELECT 'reply', :ref, :session_key, :reason, :detail, :payload, :attempts, 'open', :now
FROM {{buried}}

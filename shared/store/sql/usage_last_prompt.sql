-- How long a session's last prompt was.
SELECT last_prompt FROM usage WHERE session_id = :session_id AND last_prompt IS NOT NULL
ORDER BY updated_at DESC LIMIT 1

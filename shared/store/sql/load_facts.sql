-- What is known of the session a key talks to.
SELECT name, value FROM facts
WHERE scope = (SELECT session_id FROM routes WHERE session_key = :session_key)

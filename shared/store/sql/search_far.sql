-- How far a session is indexed for search.
SELECT searched FROM sessions WHERE id = :session_id

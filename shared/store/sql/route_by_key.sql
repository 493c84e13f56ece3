-- How far the mail of a key has come, and how much of it waits.
SELECT session_id, last_seq, done_seq, created_at,
       (SELECT COUNT(*) FROM inbox WHERE inbox.session_key = :session_key AND inbox.state = 'pending') AS pending
FROM routes WHERE session_key = :session_key

-- A session that is to be looked at, and how it stands.
SELECT flushes.upto, flushes.tries, sessions.version, sessions.message_count, sessions.updated_at, sessions.ended_at,
       flushes.due_at
FROM flushes JOIN sessions ON sessions.id = flushes.session_id
WHERE flushes.session_id = :session_id AND flushes.state = 'due'
